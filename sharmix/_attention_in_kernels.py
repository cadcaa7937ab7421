"""Attention by the CUDA kernels: which calls they take, and their autograd node.

The host chooses by shapes, dtypes and orders that are numbers. A learned order is known by the range in which its
module keeps it; a head whose order is out of range gets NaN.
"""

from collections.abc import Sequence
from math import inf
from typing import Any

import torch
from torch import Tensor, nn

from sharmix import _arguments, functional
from sharmix._arguments import widened
from sharmix._caller import current_caller, is_last_derivative
from sharmix._learned_range import RANGES
from sharmix._operators.backend import backend
from sharmix._operators.orders import Orders, is_concave
from sharmix._private_torch import is_plain_tensor
from sharmix.activations import Entmax, SharmaMittal

_LEAST_Q = RANGES["q"][0]  # nearer to 1 the gradients lose digits, as 1/(q − 1)


def attention_in_kernels(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    activation: SharmaMittal,
    mask: Tensor | None,
    is_causal: bool,
    scale: float,
    leading: tuple[int, ...],
) -> Tensor | None:
    """activation(scale · Q Kᵀ) V, 0 for a query that sees no key; None where the kernels do not take the call.

    Args:
        query, key, value: [..., L, E], [..., S, E] and [..., S, Ev] in one dtype. The last of their leading dimensions
            are heads; those of key and value may be fewer.
        activation: one that `can_be_in_blocks`.
        mask: bool, or numbers to add.
        leading: the leading dimensions of the scores.
    """
    given = [query, key, value] if mask is None else [query, key, value, mask]
    is_plain = isinstance(scale, int | float) and 0 < scale < inf and all(map(is_plain_tensor, given))
    if not is_plain or len({one.device for one in given}) > 1 or len({query.dtype, key.dtype, value.dtype}) > 1:
        return None
    if mask is not None and (mask.dtype != torch.bool or mask.shape[-2] > 1 or (mask.dim() > 2 and mask.shape[-3] > 1)):
        return None
    batch, heads = leading[:-1], leading[-1] if leading else 1
    others = {one.shape[-3] if one.dim() > 2 else 1 for one in (key, value)}
    orders = _known_orders(activation, heads, query.device)
    if orders is None or len(others) > 1 or not _kernels().fits(query, value):
        return None
    rows, columns = query.shape[-2], key.shape[-2]
    parts = [
        one.expand(*batch, number, *one.shape[-2:]).reshape(-1, number, *one.shape[-2:]).contiguous()
        for one, number in zip((query, key, value), (heads, *others, *others), strict=True)
    ]
    if mask is not None:
        mask = (mask[..., 0, 0, :] if mask.dim() > 2 else mask[0]).expand(*batch, columns).reshape(-1, columns)
    numbers = [None if isinstance(order, Tensor) else order for order in orders]
    tensors = [order if isinstance(order, Tensor) else None for order in orders]
    output = _Attention.apply((mask, numbers, scale, is_causal), *parts, *tensors)
    return output.reshape(*leading, rows, value.shape[-1])


def can_be_in_kernels(query: Tensor, activation: object) -> bool:
    """Whether there are kernels for the device and this sort of activation, and the caller is plain.

    In the checked mode there are none: the other ways raise an error that names a wrong order.
    """
    if not isinstance(activation, SharmaMittal) or _arguments.CHECKS_EVERYWHERE:
        return False
    return backend(query.device) == "triton" and current_caller().is_plain


def _kernels() -> Any:
    from sharmix._operators.triton import attention  # needs Triton

    return attention


def _known_orders(activation: SharmaMittal, heads: int, device: torch.device) -> Orders | None:
    """q, r and T₀ as numbers, or tensors of one value or one for each head; None where they may not be smooth."""
    from sharmix._operators.triton.equation import MOST_SMOOTH_R

    q, r, temperature = orders = activation.orders()
    for order in orders:
        if isinstance(order, Tensor) and not (
            order.device == device and is_plain_tensor(order) and _fits(order, heads)
        ):
            return None
    if isinstance(activation, Entmax) and isinstance(activation.alpha, nn.Parameter):
        return q, r, temperature  # of every α in its range
    (least_q, most_q), (least_r, most_r) = _range_of(q, "q"), _range_of(r, "r")
    # With nonconcave="error" a head whose orders leave the concave region is NaN anyway.
    stays_concave = activation.nonconcave == "error" or is_concave(most_q, least_r)
    is_smooth = least_q >= _LEAST_Q and most_q <= 2 and stays_concave and most_r <= MOST_SMOOTH_R
    numbers = [order if isinstance(order, Tensor) else float(order) for order in orders]
    return (numbers[0], numbers[1], numbers[2]) if is_smooth else None


def _fits(order: Tensor, heads: int) -> bool:
    return order.numel() == 1 or (order.dim() > 2 and order.numel() == order.shape[-3] == heads)


def _range_of(order: float | Tensor, name: str) -> tuple[float, float]:
    """Between which numbers an order lies, as far as the host knows."""
    if isinstance(order, Tensor):
        return RANGES[name] if isinstance(order, nn.Parameter) else (0.0, inf)
    return order, order


class _Attention(torch.autograd.Function):
    """The output [batch, heads, L, Ev] of contiguous tensors. The orders follow as inputs, None for numbers."""

    @staticmethod
    def forward(
        ctx: Any, settings: tuple[Any, ...], query: Tensor, key: Tensor, value: Tensor, *tensors: Tensor | None
    ) -> Tensor:
        mask, numbers, *options = settings
        problem = _kernels().Problem(query, key, value, mask, _given(numbers, tensors), *options)
        output, kept = _kernels().forward(problem, True in ctx.needs_input_grad)
        ctx.settings = numbers, options
        ctx.save_for_backward(query, key, value, mask, *tensors, output, *kept)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (query, key, value, mask, *others), (numbers, options) = ctx.saved_tensors, ctx.settings
        tensors, (output, *kept), wanted = others[:3], others[3:], ctx.needs_input_grad[1:]
        problem = _kernels().Problem(query, key, value, mask, _given(numbers, tensors), *options)
        inputs = query, key, value, *tensors
        if not is_last_derivative(grad):
            return None, *_differentiable_gradients(problem, grad, inputs, wanted)
        parts = _kernels().backward(problem, output, kept, grad, any(wanted[1:3]), any(wanted[3:]))
        gradients = [*parts[:3], *(parts[3] if any(wanted[3:]) else [None] * 3)]
        return None, *[
            _like(part, one) if want else None for part, one, want in zip(gradients, inputs, wanted, strict=True)
        ]


def _given(numbers: Sequence[float | None], tensors: Sequence[Tensor | None]) -> Orders:
    q, r, temperature = (one if of is None else of for one, of in zip(numbers, tensors, strict=True))
    return q, r, temperature  # type: ignore[return-value]


def _like(gradient: Tensor, one: Tensor) -> Tensor:
    """A gradient in the shape and dtype of an input; that by an order is given for each head."""
    gradient = gradient.sum() if one.numel() == 1 else gradient
    return gradient.reshape(one.shape).to(one.dtype)


def _differentiable_gradients(
    problem: Any, grad: Tensor, inputs: Sequence[Tensor | None], wanted: Sequence[bool]
) -> list[Tensor | None]:
    """The wanted gradients, of which torch knows the derivatives: all scores are in memory."""
    query, key, value, mask, orders, scale, is_causal = problem
    creates_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        group = query.shape[1] // key.shape[1]
        keys, values = (one.repeat_interleave(group, 1) for one in (key, value))
        scores = widened(query) * scale @ widened(keys).mT
        if is_causal:
            scores = scores.masked_fill(torch.ones_like(scores[0, 0], dtype=torch.bool).triu(1), -torch.inf)
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, None], -torch.inf)
        shaped = (one.reshape(-1, 1, 1) if isinstance(one, Tensor) else one for one in orders)
        output = functional.sharmix(scores, *shaped, masked_rows="zeros").to(value.dtype) @ values
    asked = [one for one, want in zip(inputs, wanted, strict=True) if want and one is not None]
    found = iter(torch.autograd.grad(output, asked, grad, create_graph=creates_graph))
    return [next(found) if want else None for want in wanted]
