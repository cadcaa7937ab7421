"""An output layer and its Fenchel–Young loss together, without ever holding all logits: for large vocabularies."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding_bag, linear

from sharmix import _operators
from sharmix._arguments import Parameter, entropy_parameters, float_tensor
from sharmix.losses import Reduction, check_reduction, fenchel_young_loss
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
    if _operators.function_transforms_active() or torch.compiler.is_compiling():
        logits = linear(hidden, weight, bias)
        return fenchel_young_loss(logits, targets, q, r, temperature, ignore_index, 0.0, reduction, nonconcave)
    orders = entropy_parameters(hidden.new_empty(1), -1, q=q, r=r, temperature=temperature)
    rows, classes = hidden.reshape(-1, hidden.shape[-1]), targets.reshape(-1)
    loss: Tensor = _LinearLoss.apply(rows, weight, bias, classes, *orders, ignore_index, reduction, nonconcave)
    return loss


def _check_shapes(hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> None:
    if weight.dim() != 2 or weight.shape[1] != hidden.shape[-1] or not len(weight):
        raise ValueError(
            f"weight of shape {tuple(weight.shape)} does not go with hidden of shape {tuple(hidden.shape)}; "
            f"it must be [classes, {hidden.shape[-1]}] with at least 1 class"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias of shape {tuple(bias.shape)} must be of shape {tuple(weight.shape[:1])}")
    if not isinstance(targets, Tensor) or targets.is_floating_point() or targets.dtype == torch.bool:
        kind = targets.dtype if isinstance(targets, Tensor) else type(targets).__name__
        raise TypeError(f"targets must be class indices of an integer type, got {kind}")
    if targets.shape != hidden.shape[:-1]:
        raise ValueError(
            f"class indices of shape {tuple(targets.shape)} do not match hidden of shape {tuple(hidden.shape)}; "
            f"they must be of shape {tuple(hidden.shape[:-1])}"
        )


class _LinearLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        q: Tensor,
        r: Tensor,
        temperature: Tensor,
        ignore_index: int,
        reduction: str,
        nonconcave: Nonconcave,
    ) -> Tensor:
        orders = (q, r, temperature)
        wants_layer, wants_orders = any(ctx.needs_input_grad[:3]), any(ctx.needs_input_grad[4:7])
        count = (targets != ignore_index).sum().clamp_min(1) if reduction == "mean" else targets.new_ones(())
        loss, slopes = torch.zeros((), device=hidden.device), torch.zeros(3, device=hidden.device)
        gradients = _LayerGradients(hidden, weight)
        length = max(1, _CHUNK_BYTES // (max(4, hidden.element_size()) * len(weight)))
        for start in range(0, len(hidden), length):
            some = slice(start, start + length)
            logits = float_tensor(linear(hidden[some], weight, bias), "logits", -1)
            rows, states, by_orders = _operators.class_loss(
                logits, targets[some], *orders, ignore_index, nonconcave, wants_orders
            )
            loss = loss + rows.sum() / count
            slopes = slopes + by_orders.sum(0) / count if wants_orders else slopes
            if wants_layer:
                share = count.to(logits.dtype).reciprocal()
                gradients.add(
                    start,
                    _operators.class_loss_backward(logits, targets[some], states, share, *orders, ignore_index),
                )
        ctx.orders = orders
        ctx.save_for_backward(*(gradients.collected() if wants_layer else (None, None, None)), slopes)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *layer, slopes = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        by_layer = [part * grad.to(part.dtype) if want else None for part, want in zip(layer, wanted[:3], strict=True)]
        by_orders = [
            (slope * grad).reshape(order.shape) if want else None
            for slope, order, want in zip(slopes, ctx.orders, wanted[4:7], strict=True)
        ]
        return *by_layer, None, *by_orders, None, None, None


class _LayerGradients:
    """Of hidden, weight and bias, gathered chunk by chunk from the errors of the logits."""

    def __init__(self, hidden: Tensor, weight: Tensor) -> None:
        self.hidden, self.weight = hidden, weight
        self.by_hidden, self.by_bias = torch.empty_like(hidden), torch.zeros_like(weight[:, 0])
        self.by_weight: Tensor | None = None  # of the chunks that are dense
        self.rows, self.classes, self.errors = ([torch.empty_like(hidden[:0, 0], dtype=torch.long)] for _ in range(3))

    def add(self, start: int, error: Tensor) -> None:
        """Take in the errors [rows, classes] of the rows from `start` on."""
        some = slice(start, start + len(error))
        error = error.to(self.weight.dtype)
        self.by_bias += error.sum(0)
        if error.count_nonzero() > _DENSE * error.numel():
            self.by_hidden[some] = error @ self.weight
            if self.by_weight is None:
                self.by_weight = torch.zeros_like(self.weight)
            self.by_weight.addmm_(error.T, self.hidden[some])
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
        by_weight = _grouped_sums(self.hidden, rows, errors, classes, len(self.weight))
        return self.by_hidden, by_weight if self.by_weight is None else by_weight + self.by_weight, self.by_bias


def _grouped_sums(table: Tensor, index: Tensor, factor: Tensor, group: Tensor, groups: int) -> Tensor:
    """Σ factor · table[index] over each group, [groups, features]; `group` is sorted."""
    starts = torch.searchsorted(group, torch.arange(groups, device=group.device))
    return embedding_bag(index, table, starts, mode="sum", per_sample_weights=factor)
