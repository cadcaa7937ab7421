"""Checks of targets, class indices or probabilities: their type, device, shape and values.

The kernels look for a class index out of range themselves: `Targets` in csrc/kernel.h, and `target_of` in
_operators/triton/outputs.py. A wrong target on the CPU raises ValueError. On a GPU, where the host would wait for the
check, it makes the loss and the gradient of its row NaN (`may_read`).
"""

import torch
from torch import Tensor

from sharmix._arguments import check_operator, checked_memory, may_read

_ROUNDED = 2**-8  # rounding to bfloat16 changes a sum of probabilities by at most half of this


def check_targets(logits: Tensor, targets: Tensor, name: str = "logits") -> None:
    if not isinstance(targets, Tensor):
        raise TypeError(f"targets must be a tensor of class indices or probabilities, got {type(targets).__name__}")
    checked_memory(targets)
    if targets.dtype is torch.int64 and targets.shape == logits.shape[:-1] and targets.device == logits.device:
        return  # as in most calls
    if targets.dtype == torch.bool or targets.is_complex():
        raise TypeError(f"targets must be class indices of an integer type or probabilities, got {targets.dtype}")
    if targets.device != logits.device:
        raise ValueError(f"targets are on {targets.device}, but {name} on {logits.device}; move one of them")
    check_shape(logits, targets, -1, name)


def check_indices(logits: Tensor, targets: Tensor, name: str) -> None:
    """`check_targets` where probabilities are not allowed."""
    if isinstance(targets, Tensor) and targets.is_floating_point():
        raise TypeError(f"targets must be class indices of an integer type, got {targets.dtype}")
    check_targets(logits, targets, name)


def check_shape(logits: Tensor, targets: Tensor, dim: int, name: str = "logits") -> None:
    """Raise ValueError if the shape of the targets does not fit logits whose classes are along `dim`."""
    soft, shape = targets.is_floating_point(), logits.shape
    allowed = shape if soft else shape[:dim] + shape[dim:][1:]
    if targets.shape != allowed:
        where = f", classes along dim={dim}" if name == "logits" else ""
        hint = " (class indices are of an integer type)" if soft else ""
        if targets.shape == shape and name == "logits":
            hint = "; if these are one-hot, convert them with .float(), and divide several labels by their number"
        raise ValueError(
            f"{'probabilities' if soft else 'class indices'} of shape {tuple(targets.shape)} do not match {name} of "
            f"shape {tuple(shape)}{where}; they must be of shape {tuple(allowed)}{hint}"
        )


def counted_rows(logits: Tensor, targets: Tensor, ignore_index: int) -> tuple[Tensor, Tensor, Tensor]:
    """Logits [..., classes], the class of each row as int64 [...], and which rows count, bool [...].

    The logits and the class of a row that does not count are 0: it may hold anything.
    """
    counted, indices = targets != ignore_index, checked_classes(targets, logits.shape[-1], ignore_index)
    finite = torch.where(counted.unsqueeze(-1), logits, 0)
    return nan_if_no_class(finite, targets, logits.shape[-1], ignore_index), indices, counted


def nan_if_no_class(rows: Tensor, targets: Tensor, classes: int, ignore_index: int) -> Tensor:
    """Rows [...] or [..., classes] times NaN where the target is no class, after a check that may not read it.

    A product makes the gradient NaN, too. What a check reads raises there.
    """
    if may_read(targets):
        return rows
    wrong = (targets != ignore_index) & outside_classes(targets, classes)
    factor = torch.where(wrong, torch.nan, 1).to(rows.dtype)
    return rows * (factor if rows.dim() == factor.dim() else factor.unsqueeze(-1))


@check_operator(
    "(Tensor targets, SymInt classes, SymInt ignore_index) -> Tensor",
    lambda targets, classes, ignore_index: torch.empty_like(targets, dtype=torch.int64),
)
def checked_classes(targets: Tensor, classes: int, ignore_index: int) -> Tensor:
    """Class indices as int64, 0 where they are `ignore_index`; where one is out of range, ValueError, or 0."""
    indices = torch.where(targets == ignore_index, 0, targets).long()
    outside = outside_classes(indices, classes)
    if not may_read(targets):
        return torch.where(outside, 0, indices)  # and `nan_if_no_class` for its row
    if outside.any():
        raise label_error(indices[outside][0].item(), classes, ignore_index)
    return indices


def outside_classes(indices: Tensor, classes: int) -> Tensor:
    """Which class indices are out of range."""
    return (indices < 0) | (indices >= classes)


def label_error(label: float, classes: int, ignore_index: int | None = None) -> ValueError:
    """The error for a class index out of range; `ignore_index` is None where every row counts."""
    ignored = "" if ignore_index is None else f" and ignore_index={ignore_index}"
    return ValueError(f"label {label} is out of range for {classes} classes; allowed are 0 to {classes - 1}{ignored}")


@check_operator(
    "(Tensor targets) -> Tensor",
    lambda y: y.new_empty(y.shape[:-1], dtype=torch.promote_types(y.dtype, torch.float32)),
)
def checked_distribution(targets: Tensor) -> Tensor:
    """1 for each row of soft targets [..., classes]; where a row is no distribution, ValueError, or NaN."""
    totals = targets.sum(-1, dtype=torch.promote_types(targets.dtype, torch.float32))
    wrong = ~((totals - 1).abs() <= _ROUNDED)
    if not may_read(targets):
        return torch.where(wrong | (targets < 0).any(-1), torch.nan, torch.ones_like(totals))
    if (targets < 0).any():
        raise ValueError(f"soft targets must be >= 0, got {targets[targets < 0][0].item()!r}")
    if wrong.any():
        raise ValueError(f"soft targets must sum to 1 over the classes, got a sum of {totals[wrong][0].item()!r}")
    return torch.ones_like(totals)
