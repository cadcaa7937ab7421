"""The Fenchel–Young loss of any regulariser, against class indices or probabilities."""

from contextlib import suppress
from operator import index
from typing import Literal, Protocol, TypedDict

import torch
from torch import Tensor

from sharmix._arguments import checked, checked_memory, checked_values, may_read
from sharmix._caller import current_caller
from sharmix._targets import check_targets, checked_classes, checked_distribution, counted_rows

Reduction = Literal["none", "mean", "sum"]


class UnweightedLossOptions(TypedDict, total=False):
    """The keyword arguments of every loss, as in `torch.nn.CrossEntropyLoss`.

    Attributes:
        ignore_index: the class index of rows to leave out of the loss and of the mean. Default: −100.
        label_smoothing: ε in [0, 1]; the target y becomes (1 − ε) y + ε/classes. Default: 0.
        reduction: `none` for one loss for each row, `mean` (the default; NaN over no rows, as in torch), or `sum`.
    """

    ignore_index: int
    label_smoothing: float
    reduction: Reduction


class LinearLossOptions(UnweightedLossOptions, total=False):
    """The options of `UnweightedLossOptions`, without the reduction `none`, and the layout of the weight's gradient.

    Attributes:
        sparse_grad: whether the gradient of the weight is a sparse tensor of the rows that are not 0, as
            `torch.optim.SparseAdam` takes it. These are the classes in the support of some row and the targets; with
            label smoothing, all. On CUDA the host then waits, for their number. The gradient of the bias stays dense,
            and so does the weight's under `torch.compile` and the transforms of `torch.func`. Default: False.
    """

    sparse_grad: bool


class LossOptions(UnweightedLossOptions, total=False):
    """The options of `UnweightedLossOptions`, and a weight for each class.

    Attributes:
        weight: one weight ≥ 0 for each class, [classes]. A row has the weight of its target, in the loss and in the
            mean.
    """

    weight: Tensor | None


class Regulariser(Protocol):
    """An entropy −Ω, its conjugate Ω*, and its loss against class indices. Each `Activation` is a regulariser, too."""

    normalised: bool

    def entropy(self, probabilities: Tensor) -> Tensor: ...
    def conjugate(self, logits: Tensor) -> Tensor: ...
    def class_loss(self, logits: Tensor, targets: Tensor, ignore_index: int, reduction: Reduction) -> Tensor: ...


def fenchel_young_loss(
    regulariser: Regulariser,
    logits: Tensor,
    targets: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """L(z, y) = Ω*(z) − z·y + Ω(y) for logits [..., classes], float32 or wider.

    With class weights w, s = Σ wᵢyᵢ and ỹ = w∘y/s, the loss is s L(z, ỹ). For softmax this is the weighted
    cross-entropy minus s times the entropy of ỹ. The mean divides by Σ w_y if targets are class indices, and by the
    number of rows if they are probabilities.
    """
    ignore_index = checked_options(ignore_index, label_smoothing, reduction)
    if logits.shape[-1] == 0:
        raise ValueError(f"logits of shape {tuple(logits.shape)} have no classes; a loss needs at least 1")
    check_targets(logits, targets)
    if weight is not None:
        weight = checked_weight(logits, weight)
    if targets.is_floating_point():
        if ignore_index >= 0:
            raise ValueError(f"ignore_index={ignore_index} is not allowed beside probabilities as targets")
        ones = checked_distribution(targets.detach()).to(logits.dtype).unsqueeze(-1)
        y = targets.to(logits.dtype) * ones
        y = y / y.sum(-1, keepdim=True)
        logits = logits if may_read(targets) else logits * ones  # a row of NaN has the gradient NaN
        y = (1 - label_smoothing) * y + label_smoothing / logits.shape[-1] if label_smoothing else y
        return reduced(_soft_loss(regulariser, logits, y, weight), None, reduction)
    targets = targets if targets.dtype is torch.int64 else targets.long()
    if not label_smoothing and weight is None:
        return regulariser.class_loss(logits, targets, ignore_index, reduction)
    if label_smoothing:
        finite, indices, counted = counted_rows(logits, targets, ignore_index)
        rows = torch.where(counted, _smoothed_loss(regulariser, finite, indices, label_smoothing, weight), 0)
    else:
        indices, counted = checked_classes(targets, logits.shape[-1], ignore_index), targets != ignore_index
        rows = regulariser.class_loss(logits, targets, ignore_index, "none")
    shares = class_shares(indices, counted, weight, rows.dtype)
    return reduced(rows if label_smoothing else rows * shares, shares, reduction)


def class_shares(indices: Tensor, counted: Tensor, weight: Tensor | None, dtype: torch.dtype) -> Tensor:
    """The share of each row in the mean, [...]: the weight of its class; 0 for rows that do not count."""
    shares = counted.to(dtype)
    if weight is None:
        return shares
    # not by an index: that of no dimension fails under vmap
    return shares * weight.to(dtype).index_select(0, indices.flatten()).reshape(indices.shape)


def composed_class_loss(
    regulariser: Regulariser, logits: Tensor, targets: Tensor, ignore_index: int, reduction: Reduction
) -> Tensor:
    """The loss against one class index for each row, from conjugate and entropy, by torch's own operations."""
    finite, indices, counted = counted_rows(logits, targets, ignore_index)
    x = _minus_largest(regulariser, finite)
    rows = regulariser.conjugate(x) - at_class(x, indices)
    rows = _nonnegative(rows if regulariser.normalised else rows - regulariser.entropy(logits.new_ones(1)))
    return reduced(torch.where(counted, rows, 0), counted.to(rows.dtype), reduction)


def _soft_loss(regulariser: Regulariser, logits: Tensor, y: Tensor, weight: Tensor | None) -> Tensor:
    share = None
    if weight is not None:
        y = y * weight.to(y.dtype)
        share = y.sum(-1)
        y = torch.where(y > 0, y / share.unsqueeze(-1), 0)
    x = _minus_largest(regulariser, logits)
    agreement = (torch.where(y > 0, x, 0) * y).sum(-1)  # a logit of −∞ is allowed if the target has probability 0
    rows = _nonnegative(regulariser.conjugate(x) - agreement - regulariser.entropy(y))
    return rows if share is None else torch.where(share > 0, rows, 0) * share


def _smoothed_loss(
    regulariser: Regulariser, logits: Tensor, indices: Tensor, smoothing: float, weight: Tensor | None
) -> Tensor:
    classes = logits.shape[-1]
    if weight is not None:
        y = torch.full_like(logits, smoothing / classes)
        y = y.scatter_add(-1, indices.unsqueeze(-1), torch.full_like(y[..., :1], 1 - smoothing))
        return _soft_loss(regulariser, logits, y, weight)
    x = _minus_largest(regulariser, logits)
    agreement = (1 - smoothing) * at_class(x, indices) + smoothing * x.mean(-1)
    smoothed = logits.new_full((classes,), smoothing / classes)
    smoothed[0] += 1 - smoothing
    return _nonnegative(regulariser.conjugate(x) - agreement - regulariser.entropy(smoothed))


def _nonnegative(rows: Tensor) -> Tensor:
    """The rows with negative values set to 0: rounding can give −1e-17 at p = y. The gradient does not change."""
    return rows - rows.detach().clamp_max(0)


def _minus_largest(regulariser: Regulariser, logits: Tensor) -> Tensor:
    """Logits minus the largest of their row, if a constant added to the logits changes no output."""
    return logits - logits.detach().amax(-1, keepdim=True) if regulariser.normalised else logits


def reduced(rows: Tensor, shares: Tensor | None, reduction: Reduction) -> Tensor:
    """The rows, their sum, or their sum divided by the sum of `shares`; shares of None are 1 each."""
    if reduction == "none":
        return rows
    total = rows.sum()
    if reduction == "sum":
        return total
    count = rows.new_full((), rows.numel()) if shares is None else shares.sum()
    # The mean over no rows is NaN with gradient 0, as in torch.
    return total / torch.where(count > 0, count, 1) + torch.where(count > 0, 0, torch.nan).to(total.dtype)


def at_class(x: Tensor, classes: Tensor) -> Tensor:
    """x_y: the entry of each row [..., classes] at its class index, int64 [...]."""
    # `index_select` keeps only the indices for the backward pass; `gather` would keep the logits.
    starts = torch.arange(0, x.numel(), x.shape[-1], device=x.device)
    return x.flatten().index_select(0, starts + classes.flatten()).reshape(classes.shape)


def checked_options(ignore_index: int, label_smoothing: float, reduction: str) -> int:
    """`ignore_index` as a plain int, after a check of all options; NumPy's and torch's integers are allowed, too."""
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing={label_smoothing!r} is not allowed; it must be between 0 and 1")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"reduction={reduction!r} is not allowed; it must be 'none', 'mean' or 'sum'")
    if type(ignore_index) is int:
        return ignore_index
    if not isinstance(ignore_index, bool):
        with suppress(TypeError):
            return index(ignore_index)
    raise TypeError(f"ignore_index must be an integer, got {ignore_index!r}")


def checked_weight(logits: Tensor, weight: Tensor) -> Tensor:
    if not isinstance(weight, Tensor):
        raise TypeError(f"weight must be a tensor of one number for each class, got {type(weight).__name__}")
    checked_memory(weight)
    if weight.shape != logits.shape[-1:] or not weight.is_floating_point() or weight.device != logits.device:
        raise ValueError(
            f"weight of shape {tuple(weight.shape)}, {weight.dtype} on {weight.device} is not allowed; it must be "
            f"floating-point of shape ({logits.shape[-1]},) on {logits.device}, one number for each class"
        )
    if may_read(weight) and current_caller().can_read_values:
        checked_values(weight.detach(), "weight")  # without an operator, which takes longer
        return weight
    return checked(weight, "weight")  # type: ignore[return-value]  # a tensor, as it was
