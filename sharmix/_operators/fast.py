"""The short way through map and losses, which makes them as fast as softmax on small batches.

For what is most common, float32 or float64 logits in the processor's memory and orders of one value, a node of the
autograd graph calls the kernel itself, past torch's dispatcher. Each function returns None for all else. A backward
pass that is asked for more than a plain gradient goes the long way, by `derivatives`.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sharmix._arguments import Order, checked_memory
from sharmix._operators import backend, cpu, derivatives

_Orders = tuple[float, float | None, float, tuple[int, ...]]  # the values of orders, and which of them are tensors


def sharmix(logits: Tensor, q: Order, r: Order, temperature: Order) -> Tensor | None:
    """The map of logits [..., classes]."""
    found = None if _is_closed() else cpu.kernel.node_orders(logits, None, q, r, temperature)
    if found is None:
        return None
    orders, tensors = found
    p: Tensor = _Map.apply(logits, orders, *tensors)
    return p


def _as_given(orders: _Orders, tensors: Sequence[Tensor]) -> tuple[Any, list[bool]]:
    """The orders as they were given, and which of them are tensors."""
    given: list[Any] = list(orders[:3])
    for place, tensor in zip(orders[3], tensors, strict=True):
        if tensor.item() != orders[place]:
            raise RuntimeError(f"an order has been modified by an inplace operation, from {orders[place]} to {tensor}")
        given[place] = tensor
    return given, [place in orders[3] for place in range(3)]


def class_loss(
    logits: Tensor,
    targets: Tensor,
    q: Order,
    r: Order | None,
    temperature: Order,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Tensor | None:
    """The mean or sum of the losses of logits [..., classes] against one class a row, [...]; α-ReLU has α, None, τ."""
    if weight is not None or label_smoothing or reduction == "none" or _is_closed():
        return None
    found = cpu.kernel.node_orders(logits, targets, q, r, temperature)
    if found is None or type(ignore_index) is not int or reduction not in ("mean", "sum"):
        return None
    orders, tensors = found
    loss: Tensor = _ClassLoss.apply(logits, targets, orders, ignore_index, reduction == "mean", *tensors)
    return loss


def _is_closed() -> bool:
    return torch.compiler.is_compiling() or backend.is_plain_torch() or cpu.kernel is None


class _Map(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, orders: _Orders, *tensors: Tensor) -> Tensor:
        p: Tensor = cpu.kernel.solve(logits, *orders[:3], False)
        ctx.orders, ctx.tensors = orders, tensors
        ctx.save_for_backward(p)
        return p

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Sequence[Tensor | None]:
        (p,) = ctx.saved_tensors
        gradients: Sequence[Tensor | None] | None = cpu.kernel.map_gradients(p, grad, ctx.orders, ctx.tensors)
        if gradients is not None:
            return gradients
        by_logits, *by_orders = derivatives.through_map(grad, p, *_as_given(ctx.orders, ctx.tensors))
        return by_logits, None, *(by_orders[place] for place in ctx.orders[3])


class _ClassLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, orders: _Orders, ignore_index: int, mean: bool, *tensors: Tensor
    ) -> Tensor:
        try:
            found = cpu.kernel.class_loss_of_node(orders, logits, targets, ignore_index, mean, ctx.needs_input_grad[0])
        except LookupError as row:
            raise cpu.label_error_at(row, targets, logits, ignore_index) from None
        loss, found_for_backward, is_gradient, divisor, sums = found
        ctx.settings = ignore_index, divisor, is_gradient, sums, orders, tensors
        ctx.save_for_backward(logits, targets, found_for_backward)
        return loss  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Sequence[Tensor | None]:
        logits, targets, found = ctx.saved_tensors
        gradients: Sequence[Tensor | None] | None = cpu.kernel.class_loss_gradients(
            logits, targets, found, grad, *ctx.settings
        )
        if gradients is not None:
            return gradients
        ignored, divisor, *_, orders, tensors = ctx.settings
        given, wanted = _as_given(orders, tensors)
        by_logits, *by_orders = derivatives.through_class_loss(
            checked_memory(grad) / divisor, logits, targets, given, ignored, "global", wanted
        )
        return by_logits, None, None, None, None, *(by_orders[place] for place in orders[3])
