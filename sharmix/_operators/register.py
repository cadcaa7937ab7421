"""The operators behind every map and loss, as torch's dispatcher knows them: schema, computation, shapes, vmap rule.

q, r, T₀, α and τ are tensors that broadcast to [..., 1]. Their values are checked here, where no traced or batched
tensor is in the way, and a compiler cannot drop the check.
"""

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sharmix._arguments import Order, boxed, checked_number
from sharmix._operators.backend import select, select_alpha_relu
from sharmix._operators.orders import checked_orders

_ORDERS = ("q", "r", "temperature", "alpha", "tau")
_SHARMIX = "Tensor q, Tensor r, Tensor temperature"
_ALPHA_RELU = "Tensor alpha, Tensor tau"


def _solve(
    logits: Tensor, q: Order, r: Order, temperature: Order, nonconcave: str, wants_conjugate: bool
) -> tuple[Tensor, Tensor]:
    orders = checked_orders(logits, q, r, temperature, nonconcave)
    return select(logits, orders).solve(logits, orders, wants_conjugate)


def _map_backward(
    probabilities: Tensor, grad: Tensor, q: Order, r: Order, temperature: Order, wants_orders: bool
) -> tuple[Tensor, Tensor]:
    orders = checked_orders(probabilities, q, r, temperature)
    return select(probabilities, orders).map_backward(probabilities, grad, orders, wants_orders)


def _class_loss(
    logits: Tensor,
    targets: Tensor,
    q: Order,
    r: Order,
    temperature: Order,
    ignore_index: int,
    reduction: str,
    nonconcave: str,
    wants_slopes: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    orders = checked_orders(logits, q, r, temperature, nonconcave)
    return select(logits, orders).class_loss(logits, targets, orders, ignore_index, reduction, wants_slopes)


def _class_loss_backward(
    logits: Tensor,
    targets: Tensor,
    states: Tensor,
    grad: Tensor,
    q: Order,
    r: Order,
    temperature: Order,
    ignore_index: int,
) -> Tensor:
    orders = checked_orders(logits, q, r, temperature)
    return select(logits, orders).class_loss_backward(logits, targets, states, grad, orders, ignore_index)


def _alpha_relu_loss(
    logits: Tensor, targets: Tensor, alpha: Order, tau: Order, ignore_index: int, reduction: str
) -> tuple[Tensor, Tensor]:
    order, threshold = checked_number(_number(alpha), "alpha of alpha-ReLU"), _number(tau)
    loss: tuple[Tensor, Tensor] = select_alpha_relu(logits, order).alpha_relu_loss(
        logits, targets, order, threshold, ignore_index, reduction
    )
    return loss


def _alpha_relu_loss_backward(
    logits: Tensor, targets: Tensor, grad: Tensor, alpha: Order, tau: Order, ignore_index: int
) -> Tensor:
    order, threshold = _number(alpha), _number(tau)
    by_logits: Tensor = select_alpha_relu(logits, order).alpha_relu_loss_backward(
        logits, targets, grad, order, threshold, ignore_index
    )
    return by_logits


def _number(order: Order) -> float:
    return order.item() if isinstance(order, Tensor) else order


def _wide(values: Tensor, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return values.new_empty(shape, dtype=torch.promote_types(values.dtype, dtype))


def _like(values: Tensor, *_: object) -> Tensor:
    return values.new_empty(values.shape)


def _fake_solve(logits: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    return _like(logits), _wide(logits, *logits.shape[:-1]) if others[-1] else _wide(logits, 0)


def _fake_map_backward(probabilities: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    along = _wide(probabilities, *probabilities.shape[:-1], 3) if others[-1] else _wide(probabilities, 0)
    return _like(probabilities), along


def _fake_loss(logits: Tensor, reduction: str) -> tuple[Tensor, Tensor]:
    return _wide(logits, *logits.shape[:-1]) if reduction == "none" else _wide(logits), _wide(logits)


def _fake_class_loss(logits: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    *_, reduction, _, wants_slopes = others
    (loss, divisor), rows = _fake_loss(logits, reduction), logits.shape[:-1]
    slopes = _wide(logits, *rows, 3) if wants_slopes else _wide(logits, 0)
    return loss, _wide(logits, *rows, 4, dtype=torch.float64), slopes, divisor


def _fake_alpha_relu_loss(logits: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    return _fake_loss(logits, others[-1])


def _batched_as_rows(name: str, schema: str) -> Callable[..., Any]:
    """The vmap rule: a batch is one more row dimension, the first."""
    names = re.findall(r"\w+ (\w+)[,)]", schema)

    def rule(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, Any]:
        shape = [length for dim, length in enumerate(inputs[0].shape) if dim != in_dims[0]]
        batched = [
            _batch_first(one, dim, info.batch_size, name, shape) if isinstance(one, Tensor) else one
            for name, one, dim in zip(names, inputs, in_dims, strict=True)
        ]
        outputs = getattr(torch.ops.sharmix, name)(*batched)
        if isinstance(outputs, Tensor):
            return outputs, 0
        return outputs, tuple(None if one.shape == (0,) else 0 for one in outputs)  # what was not wanted is empty

    return rule


def _batch_first(tensor: Tensor, dim: int | None, size: int, name: str, shape: list[int]) -> Tensor:
    """The tensor with its batch first; `shape` is that of one example's logits."""
    is_order = name in _ORDERS
    if is_order and dim is None:
        return tensor
    tensor = tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
    if is_order:
        return tensor.reshape(size, *[1] * (len(shape) + 1 - tensor.dim()), *tensor.shape[1:])
    if name == "grad" and tensor.dim() == 1:  # one for all rows of a loss
        return tensor.reshape(size, *[1] * (len(shape) - 1)).expand(size, *shape[:-1])
    return tensor


def _operator(name: str, schema: str, compute: Callable[..., Any], shapes: Callable[..., Any]) -> Callable[..., Any]:
    torch.library.define(f"sharmix::{name}", schema, tags=torch.Tag.pt2_compliant_tag)
    torch.library.impl(f"sharmix::{name}", "default", compute)
    torch.library.register_fake(f"sharmix::{name}", shapes)
    if "str reduction" not in schema:  # which would reduce over the batch
        torch.library.register_vmap(f"sharmix::{name}", _batched_as_rows(name, schema))
    dispatched = getattr(torch.ops.sharmix, name).default

    def call(*inputs: Any) -> Any:
        return dispatched(*[boxed(one) if isinstance(one, float) else one for one in inputs])

    return call


solve = _operator(
    "solve",
    f"(Tensor logits, {_SHARMIX}, str nonconcave, bool wants_conjugate) -> (Tensor, Tensor)",
    _solve,
    _fake_solve,
)
map_backward = _operator(
    "map_backward",
    f"(Tensor probabilities, Tensor grad, {_SHARMIX}, bool wants_orders) -> (Tensor, Tensor)",
    _map_backward,
    _fake_map_backward,
)
class_loss = _operator(
    "class_loss",
    f"(Tensor logits, Tensor targets, {_SHARMIX}, int ignore_index, str reduction, str nonconcave, bool wants_slopes)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
    _class_loss,
    _fake_class_loss,
)
class_loss_backward = _operator(
    "class_loss_backward",
    f"(Tensor logits, Tensor targets, Tensor states, Tensor grad, {_SHARMIX}, int ignore_index) -> Tensor",
    _class_loss_backward,
    _like,
)
alpha_relu_loss = _operator(
    "alpha_relu_loss",
    f"(Tensor logits, Tensor targets, {_ALPHA_RELU}, int ignore_index, str reduction) -> (Tensor, Tensor)",
    _alpha_relu_loss,
    _fake_alpha_relu_loss,
)
alpha_relu_loss_backward = _operator(
    "alpha_relu_loss_backward",
    f"(Tensor logits, Tensor targets, Tensor grad, {_ALPHA_RELU}, int ignore_index) -> Tensor",
    _alpha_relu_loss_backward,
    _like,
)
