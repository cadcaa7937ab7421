"""An output layer and its Fenchel–Young loss together, without ever holding all logits: for large vocabularies."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding_bag, linear

from sharmix import _operators
from sharmix._arguments import Parameter, entropy_parameters, float_tensor, is_learned
from sharmix.losses import Reduction, check_reduction, check_targets, fenchel_young_loss
from sharmix.maps import Nonconcave

_CHUNK_BYTES = 1 << 24  # of logits: well under 32 MB, from which on a C library maps and unmaps memory at each use
_DENSE = 0.1  # the share of classes with an error from which on a matrix product is faster than picking them


def linear_fenchel_young_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    q: Parameter = 1.25,
    r: Parameter = 1.5,
    temperature: Parameter = 1.0,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    nonconcave: Nonconcave = "global",
) -> Tensor:
    """The Fenchel–Young loss of the logits hidden · weightᵀ + bias, a few rows of them at a time.

    The value and gradients are those of `fenchel_young_loss(linear(hidden, weight, bias), targets, ...)`. The error
    p − y is mostly 0, so the gradients multiply its support alone; they are computed beside the value and kept for the
    backward pass, which cannot be differentiated again.

    Args:
        hidden: [..., features], floating point.
        weight: [classes, features].
        bias: [classes], or None.
        targets: class indices [...] of an integer type.
        q, r, temperature: numbers or tensors of one element.
        ignore_index, nonconcave: as for `fenchel_young_loss`.
        reduction: `mean` over the rows not ignored, or `sum`.

    Returns:
        The loss, a scalar; float32 for half precision.

    Raises:
        TypeError: hidden or targets of the wrong kind.
        ValueError: a value, label or shape that is not allowed.

    Source: `math` section 5.
    """
    check_reduction(reduction)
    if reduction == "none":
        raise ValueError("reduction='none' is not allowed here: gradients are summed at once; use 'mean' or 'sum'")
    float_tensor(hidden, "hidden", -1)
    _check_shapes(hidden, weight, bias, targets)
    q, r = _single("q", q, hidden), _single("r", r, hidden)
    temperature = _single("temperature", temperature, hidden)
    orders = (q, r, temperature)
    if _operators.function_transforms_active() or torch.compiler.is_compiling():
        logits = linear(hidden, weight, bias)
        return fenchel_young_loss(logits, targets, q, r, temperature, ignore_index, 0.0, reduction, nonconcave)
    kind = hidden.device.type
    if torch.is_autocast_enabled(kind):
        half = torch.get_autocast_dtype(kind)
        hidden, weight, bias = hidden.to(half), weight.to(half), None if bias is None else bias.to(half)
    rows, classes = hidden.reshape(-1, hidden.shape[-1]), targets.reshape(-1).long()
    learns = torch.is_grad_enabled()
    wants_layer = learns and any(part is not None and part.requires_grad for part in (hidden, weight, bias))
    wants_orders = learns and any(map(is_learned, orders))
    with torch.autocast(kind, enabled=False):
        loss: Tensor = _LinearLoss.apply(
            rows, weight, bias, classes, *orders, ignore_index, reduction, nonconcave, wants_layer, wants_orders
        )
    return loss


def _single(name: str, order: Parameter, hidden: Tensor) -> Parameter:
    if isinstance(order, Tensor) and order.numel() != 1:
        raise ValueError(
            f"{name} of shape {tuple(order.shape)} is not allowed; it must be a number or hold one element"
        )
    order = order.reshape(()) if isinstance(order, Tensor) else order
    (checked,) = entropy_parameters(hidden, -1, **{name: order})
    return checked


def _check_shapes(hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> None:
    if weight.dim() != 2 or weight.shape[1] != hidden.shape[-1] or not len(weight):
        raise ValueError(
            f"weight of shape {tuple(weight.shape)} does not go with hidden of shape {tuple(hidden.shape)}; "
            f"it must be [classes, {hidden.shape[-1]}] with at least 1 class"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias of shape {tuple(bias.shape)} must be of shape {tuple(weight.shape[:1])}")
    if isinstance(targets, Tensor) and targets.is_floating_point():
        raise TypeError(f"targets must be class indices of an integer type, got {targets.dtype}")
    check_targets(hidden, targets, "hidden")


class _LinearLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        q: Parameter,
        r: Parameter,
        temperature: Parameter,
        ignore_index: int,
        reduction: str,
        nonconcave: Nonconcave,
        wants_layer: bool,
        wants_orders: bool,
    ) -> Tensor:
        orders = (q, r, temperature)
        count = (targets != ignore_index).sum().clamp_min(1) if reduction == "mean" else targets.new_ones(())
        loss, slopes = torch.zeros((), device=hidden.device), torch.zeros(3, device=hidden.device)
        gradients = _LayerGradients(hidden, weight) if wants_layer else None
        length = max(1, _CHUNK_BYTES // (max(4, hidden.element_size()) * len(weight)))
        for start in range(0, len(hidden), length):
            some = slice(start, start + length)
            logits = float_tensor(linear(hidden[some], weight, bias), "logits", -1)
            rows, states, by_orders = _operators.class_loss(
                logits, targets[some], *orders, ignore_index, nonconcave, wants_orders
            )
            loss = loss + rows.sum() / count
            slopes = slopes + by_orders.sum(0) if wants_orders else slopes
            if gradients is not None:
                one = torch.ones((), dtype=logits.dtype, device=logits.device)
                error = _operators.class_loss_backward(logits, targets[some], states, one, *orders, ignore_index)
                gradients.add(start, error)
        ctx.orders, ctx.dtypes = orders, (hidden.dtype, weight.dtype, weight.dtype)
        ctx.save_for_backward(*((None, None, None) if gradients is None else gradients.collected()), slopes, count)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *layer, slopes, count = ctx.saved_tensors
        wanted, grad = ctx.needs_input_grad, grad / count
        by_layer = [
            (part * grad).to(dtype) if want else None
            for part, dtype, want in zip(layer, ctx.dtypes, wanted[:3], strict=True)
        ]
        by_orders = [
            (slope * grad).reshape(order.shape) if want and isinstance(order, Tensor) else None
            for slope, order, want in zip(slopes, ctx.orders, wanted[4:7], strict=True)
        ]
        return *by_layer, None, *by_orders, *[None] * 5


class _LayerGradients:
    """Of hidden, weight and bias, gathered chunk by chunk, in float32 at least, from the errors of the logits."""

    def __init__(self, hidden: Tensor, weight: Tensor) -> None:
        self.hidden, self.weight = hidden, weight
        self.wide = torch.promote_types(weight.dtype, torch.float32)
        self.by_hidden = torch.empty_like(hidden, dtype=self.wide)
        self.by_bias = torch.zeros_like(weight[:, 0], dtype=self.wide)
        self.by_weight: Tensor | None = None  # of the chunks that are dense
        self.rows, self.classes, self.errors = ([torch.empty_like(hidden[:0, 0], dtype=torch.long)] for _ in range(3))

    def add(self, start: int, error: Tensor) -> None:
        """Take in the errors [rows, classes] of the rows from `start` on."""
        some = slice(start, start + len(error))
        self.by_bias += error.sum(0)
        error = error.to(self.weight.dtype)
        if error.count_nonzero() > _DENSE * error.numel():
            self.by_hidden[some] = error @ self.weight
            if self.by_weight is None:
                self.by_weight = torch.zeros_like(self.weight, dtype=self.wide)
            if self.wide == error.dtype:
                self.by_weight.addmm_(error.T, self.hidden[some])
            else:
                self.by_weight += error.T @ self.hidden[some]
            return
        rows, classes = error.nonzero(as_tuple=True)
        errors = error[rows, classes]
        self.by_hidden[some] = _grouped_sums(self.weight, classes, errors, rows, len(error))
        self.rows.append(rows + start)
        self.classes.append(classes)
        self.errors.append(errors)

    def collected(self) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients by hidden, weight and bias."""
        classes, order = torch.cat(self.classes).sort()
        rows, errors = torch.cat(self.rows)[order], torch.cat(self.errors)[order].to(self.weight.dtype)
        by_weight = _grouped_sums(self.hidden, rows, errors, classes, len(self.weight)).to(self.wide)
        return self.by_hidden, by_weight if self.by_weight is None else by_weight + self.by_weight, self.by_bias


def _grouped_sums(table: Tensor, index: Tensor, factor: Tensor, group: Tensor, groups: int) -> Tensor:
    """Σ factor · table[index] over each group, [groups, features]; `group` is sorted."""
    starts = torch.searchsorted(group, torch.arange(groups, device=group.device))
    return embedding_bag(index, table, starts, mode="sum", per_sample_weights=factor)
