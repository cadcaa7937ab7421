"""A fast path for map and losses, which makes them as fast as softmax on small batches.

It serves the most common case: float32 or float64 logits in CPU memory (for a loss also half precision) and orders of
one value. A node of the autograd graph then calls the kernel itself, without torch's dispatcher. In every other case a
function returns None. A backward pass that needs more than a plain gradient uses `derivatives`.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sharmix._arguments import Order, checked_memory, widened
from sharmix._operators import backend, cpu, derivatives

_Values = tuple[float, float | None, float]  # the values of orders


def sharmix(logits: Tensor, q: Order, r: Order, temperature: Order) -> Tensor | None:
    """The map of logits [..., classes]."""
    values = None if _is_disabled() else cpu.kernel.node_orders(logits, None, q, r, temperature)
    if values is None:
        return None
    p: Tensor = _apply_map(logits, values, q, r, temperature)
    return p


def _checked(values: _Values, given: Sequence[Order]) -> tuple[Any, list[bool]]:
    """The orders as the caller gave them, and whether each is a tensor."""
    orders: list[Any] = list(values)
    for place, order in enumerate(given):
        if isinstance(order, Tensor):
            if order.item() != values[place]:
                raise RuntimeError(
                    f"an order has been modified by an inplace operation, from {values[place]} to {order}"
                )
            orders[place] = order
    return orders, [isinstance(order, Tensor) for order in given]


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
    """The mean or sum of the losses of logits [..., classes] against class indices [...]; α, None, τ for α-ReLU."""
    if targets is None or weight is not None or label_smoothing or reduction == "none" or _is_disabled():
        return None
    values = cpu.kernel.node_orders(logits, targets, q, r, temperature)
    if values is None or type(ignore_index) is not int or reduction not in ("mean", "sum"):
        return None
    given = values if r is None else (q, r, temperature)
    loss: Tensor = _apply_class_loss(logits, targets, values, ignore_index, reduction == "mean", *given)
    return loss


def _is_disabled() -> bool:
    return torch.compiler.is_compiling() or cpu.kernel is None or backend.in_plain_torch.get()


class _Map(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, values: _Values, *given: Order) -> Tensor:
        p: Tensor = cpu.kernel.solve(logits, *values, False)
        ctx.orders = values, given
        ctx.save_for_backward(p)
        return p

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Sequence[Tensor | None]:
        (p,) = ctx.saved_tensors
        gradients: Sequence[Tensor | None] | None = cpu.kernel.map_gradients(p, grad, *ctx.orders)
        if gradients is not None:
            return gradients
        with backend.use_plain_torch(plain=False):
            by_logits, *by_orders = derivatives.through_map(grad, p, *_checked(*ctx.orders))
        return by_logits, None, *by_orders


class _ClassLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, values: _Values, ignore_index: int, mean: bool, *given: Order
    ) -> Tensor:
        asked = logits, targets, ignore_index, mean, ctx.needs_input_grad[0], values, given
        try:
            loss, states, ctx.gradient, divisor, sums = cpu.kernel.class_loss_of_node(*asked)
        except LookupError as row:
            raise cpu.label_error_at(row, targets, logits, ignore_index) from None
        ctx.settings = ignore_index, divisor, sums, values, given
        ctx.save_for_backward(logits, targets, states)
        return loss  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Sequence[Tensor | None]:
        logits, targets, states = ctx.saved_tensors
        ignored, divisor, sums, values, given = ctx.settings
        gradient, ctx.gradient = ctx.gradient, None  # a second backward pass computes it again
        gradients: Sequence[Tensor | None] | None = cpu.kernel.class_loss_gradients(
            logits, targets, states, grad, ignored, divisor, gradient, sums, values, given
        )
        if gradients is not None:
            return gradients
        orders, are_tensors = _checked(values, given)
        with backend.use_plain_torch(plain=False):
            by_logits, *by_orders = derivatives.through_class_loss(
                checked_memory(grad) / divisor, widened(logits), targets, orders, ignored, "global", are_tensors
            )
        return by_logits, None, None, None, None, *by_orders


# Not `Function.apply`: it looks for transforms, which the kernel has done already.
_apply_map = super(torch.autograd.Function, _Map).apply
_apply_class_loss = super(torch.autograd.Function, _ClassLoss).apply
