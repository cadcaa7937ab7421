"""A fast path for map and losses, which makes them as fast as softmax on small batches.

It serves float32 or float64 logits in CPU memory (for a loss also half precision; `functional` converts those of a
map) with orders of one value: a node of the autograd graph calls the kernel itself, without torch's dispatcher. In
every other case a function returns None. A backward pass that needs more than a plain gradient uses `derivatives`. The
functions have the names of the public ones, which Python's error for an unknown argument shows.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sharmix._arguments import Order, checked_memory, widened
from sharmix._operators import backend, cpu, derivatives
from sharmix._private_torch import is_plain_call

_TENSORS = (Tensor, torch.nn.Parameter)
_LOSS_DTYPES = (*cpu.DTYPES, torch.float16, torch.bfloat16)  # a map has its logits' dtype
_MOST_R = 12  # any number of classes to the power of r - 1 is a double; for larger r the operators count the classes
_Values = tuple[float, float | None, float]  # the values of orders


def sharmix(logits: Tensor, q: Order, r: Order, temperature: Order) -> Tensor | None:
    values = None if _is_disabled() or not _is_plain_rows(logits, cpu.DTYPES) else _values(q, r, temperature)
    if values is None:
        return None
    return _Map.apply(logits, values, *_tensors_or_nothing(q, r, temperature))


def _checked(values: _Values, given: Sequence[Order]) -> tuple[Any, list[bool]]:
    """The orders as the caller gave them, and whether each is a tensor."""
    orders: list[Any] = list(values)
    for place, order in enumerate(given):
        if isinstance(order, Tensor):
            if order.item() != values[place]:
                raise RuntimeError(f"an order was modified by an inplace operation, from {values[place]} to {order}")
            orders[place] = order
    return orders, [isinstance(order, Tensor) for order in orders]


def fenchel_young_loss(
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
    if targets is None or weight is not None or label_smoothing != 0 or reduction == "none" or _is_disabled():
        return None
    if not _is_plain_rows(logits, _LOSS_DTYPES) or not _is_plain(targets):
        return None
    if targets.dtype is not torch.int64 or targets.shape != logits.shape[:-1]:
        return None
    values = _values(q, r, temperature) if r is not None else _alpha_relu_values(logits, q, temperature)
    if values is None or type(ignore_index) is not int or reduction not in ("mean", "sum"):
        return None
    given = () if r is None else _tensors_or_nothing(q, r, temperature)
    return _ClassLoss.apply(logits, targets, values, ignore_index, reduction == "mean", *given)


def _is_disabled() -> bool:
    return torch.compiler.is_compiling() or cpu.kernel is None or backend.in_plain_torch.get()


def _is_plain(values: Any) -> bool:
    """Whether the argument is a dense tensor in the processor's memory, of no subclass."""
    if type(values) not in _TENSORS or not values.is_cpu or values.layout is not torch.strided:
        return False
    try:
        return bool(values.data_ptr())
    except RuntimeError:  # a gradient that is zero by a flag has no memory
        return False


def _is_plain_rows(logits: Any, dtypes: Sequence[torch.dtype]) -> bool:
    return is_plain_call() and _is_plain(logits) and logits.dtype in dtypes and logits.dim() > 0


def _values(q: Any, r: Any, temperature: Any) -> Any:
    """The values of q, r and T₀ if the kernel supports them; for q > 2 plain torch measures better."""
    q = q if type(q) is float else _value(q)
    r = r if type(r) is float else _value(r)
    temperature = temperature if type(temperature) is float else _value(temperature)
    return (q, r, temperature) if 1 <= q <= 2 and 0 < r <= _MOST_R and 0 < temperature < math.inf else None


def _alpha_relu_values(logits: Tensor, alpha: Order, tau: Order) -> Any:
    if any(isinstance(order, Tensor) and order.requires_grad for order in (alpha, tau)):
        return None
    values = _value(alpha), None, _value(tau)
    supported = cpu.kernel.takes_alpha(values[0], logits.dtype is not torch.float64) and math.isfinite(values[2])
    return values if supported else None


def _value(order: Any) -> float:
    """The value of an order; NaN if it has several values or is no plain tensor of floating-point numbers."""
    if type(order) in _TENSORS:
        return order.item() if order.is_cpu and order.is_floating_point() and not order.dim() else math.nan
    return float(order) if type(order) in (int, float) else math.nan


def _is_plain_gradient(grad: Any, dtype: torch.dtype) -> bool:
    """Whether the kernel can read the gradient, and nobody will differentiate the result again."""
    return not torch.is_grad_enabled() and is_plain_call() and _is_plain(grad) and grad.dtype is dtype


def _tensors_or_nothing(q: Order, r: Order, temperature: Order) -> Sequence[Order]:
    """The orders as further arguments of a node, or none where all are numbers: each argument costs the node time."""
    has_tensor = type(q) in _TENSORS or type(r) in _TENSORS or type(temperature) in _TENSORS
    return (q, r, temperature) if has_tensor else ()


def _gradients(
    orders: Sequence[Any], sums: Sequence[float], factor: float = 1.0, divisor: float = 1.0
) -> Sequence[Tensor | None]:
    """The gradient of each order that is a tensor, from its sum over the rows."""
    if not orders:
        return ()
    q, r, temperature = orders
    return (
        cpu.number_like(q, factor * (sums[0] / divisor)) if type(q) in _TENSORS else None,
        cpu.number_like(r, factor * (sums[1] / divisor)) if type(r) in _TENSORS else None,
        cpu.number_like(temperature, factor * (sums[2] / divisor)) if type(temperature) in _TENSORS else None,
    )


class _Map(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, values: _Values, *given: Order) -> Tensor:
        p = cpu.probabilities(logits, values)
        ctx.orders = values, given
        ctx.save_for_backward(p)
        return p

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Sequence[Tensor | None]:
        (p,), (values, given) = ctx.saved_tensors, ctx.orders
        if _is_plain_gradient(grad, p.dtype):
            by_logits, sums = cpu.map_gradient(p, grad, values, bool(given))
            return by_logits, None, *_gradients(given, sums)
        with backend.use_plain_torch(plain=False):
            gradients = derivatives.through_map(grad, p, *_checked(values, given))
        return gradients[0], None, *gradients[1 : 1 + len(given)]


class _ClassLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, values: _Values, ignore_index: int, mean: bool, *given: Order
    ) -> Tensor:
        inputs = logits, targets, values, ignore_index, mean, ctx.needs_input_grad[0], bool(given)
        loss, states, ctx.gradient, divisor, sums = cpu.class_loss_of_node(*inputs)
        ctx.settings = ignore_index, mean, divisor, sums, values, given
        ctx.save_for_backward(logits, targets, states)
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Sequence[Tensor | None]:
        logits, targets, states = ctx.saved_tensors
        ignored, mean, divisor, sums, values, given = ctx.settings
        gradient, ctx.gradient = ctx.gradient, None  # a second backward pass computes it again
        if _is_plain_gradient(grad, torch.float64 if logits.dtype is torch.float64 else torch.float32):
            by_logits = None
            if ctx.needs_input_grad[0] and (states is not None or values[1] is None):
                by_logits = cpu.class_loss_gradient(logits, targets, states, grad, values, ignored, divisor)
            elif ctx.needs_input_grad[0]:
                if gradient is None:
                    gradient = cpu.class_loss_of_node(logits, targets, values, ignored, mean, True, False)[2]
                factor = grad.item()
                by_logits = gradient if factor == 1 else gradient.mul_(factor)
            return by_logits, None, None, None, None, *_gradients(given, sums, grad.item() if given else 1.0, divisor)
        orders, are_tensors = _checked(values, given)
        with backend.use_plain_torch(plain=False):
            gradients = derivatives.through_class_loss(
                checked_memory(grad) / divisor, widened(logits), targets, orders, ignored, "global", are_tensors
            )
        return gradients[0], None, None, None, None, *gradients[1 : 1 + len(given)]
