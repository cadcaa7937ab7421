"""The operators behind every map and loss, as torch's dispatcher knows them: schema, computation, shapes, vmap rule.

q, r and T₀ are tensors that broadcast to [..., 1], or for α-ReLU's loss α, None and τ. Their values are checked here,
where no traced or batched tensor is in the way, and a compiler cannot drop the check.
"""

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sharmix._arguments import as_tensor, define_operator
from sharmix._caller import current_caller
from sharmix._operators.backend import select_implementation
from sharmix._operators.orders import checked_orders

_ORDERS = ("q", "r", "temperature")
_SCHEMA = "Tensor q, Tensor? r, Tensor temperature"


def _wide(values: Tensor, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return values.new_empty(shape, dtype=torch.promote_types(values.dtype, dtype))


def _like(values: Tensor, *_: object) -> Tensor:
    return values.new_empty(values.shape)


def _fake_solve(logits: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    return _like(logits), _wide(logits, *logits.shape[:-1]) if others[-1] else _wide(logits, 0)


def _fake_map_backward(probabilities: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    along = _wide(probabilities, *probabilities.shape[:-1], 3) if others[-1] else _wide(probabilities, 0)
    return _like(probabilities), along


def _fake_class_loss(logits: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    (_, _, r, *_, reduction, wants_slopes), rows = others, logits.shape[:-1]
    loss = _wide(logits) if reduction != "none" else _wide(logits, *rows)
    states = _wide(logits, 0) if r is None else _wide(logits, *rows, 4, dtype=torch.float64)
    return loss, states, _wide(logits, *rows, 3) if wants_slopes else _wide(logits, 0), _wide(logits)


def _batched_as_rows(name: str, arguments: list[str]) -> Callable[..., Any]:
    """The vmap rule: a batch becomes one more row dimension, the first."""

    def rule(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, Any]:
        shape = [length for dim, length in enumerate(inputs[0].shape) if dim != in_dims[0]]
        batched = [
            _batch_first(one, dim, info.batch_size, argument, shape) if isinstance(one, Tensor) else one
            for argument, one, dim in zip(arguments, inputs, in_dims, strict=True)
        ]
        outputs = getattr(torch.ops.sharmix, name)(*batched)
        if isinstance(outputs, Tensor):
            return outputs, 0
        return outputs, tuple(None if one.shape == (0,) else 0 for one in outputs)  # an unwanted output is empty

    return rule


def _batch_first(tensor: Tensor, dim: int | None, size: int, name: str, shape: list[int]) -> Tensor:
    """The tensor with its batch dimension first; `shape` is the shape of the logits of one example."""
    is_order = name in _ORDERS
    if is_order and dim is None:
        return tensor
    tensor = tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
    if is_order:
        return tensor.reshape(size, *[1] * (len(shape) + 1 - tensor.dim()), *tensor.shape[1:])
    if name == "grad" and tensor.dim() == 1:  # one for all rows of a loss
        return tensor.reshape(size, *[1] * (len(shape) - 1)).expand(size, *shape[:-1])
    return tensor


def _operator(name: str, schema: str, shapes: Callable[..., Any]) -> Callable[..., Any]:
    """The operator for the function `name` of `backend.Implementation`, with a check of its orders."""
    arguments = re.findall(r"(\w+)[,)]", schema.split("->")[0])
    last_order = "nonconcave" if "nonconcave" in arguments else "temperature"  # which the orders' check takes
    first, stop = arguments.index("q"), arguments.index(last_order) + 1

    def compute(*inputs: Any) -> Any:
        orders = checked_orders(inputs[0], *inputs[first:stop])
        return getattr(select_implementation(inputs[0], orders), name)(*inputs[:first], orders, *inputs[stop:])

    dispatched = define_operator(name, schema, compute, shapes)
    if "reduction" not in arguments:  # which would reduce over the batch
        torch.library.register_vmap(f"sharmix::{name}", _batched_as_rows(name, arguments))

    def call(*inputs: Any) -> Any:
        caller = current_caller()
        return dispatched(*[as_tensor(one, caller) if isinstance(one, float) else one for one in inputs])

    return call


solve = _operator(
    "solve", f"(Tensor logits, {_SCHEMA}, str nonconcave, bool wants_conjugate) -> (Tensor, Tensor)", _fake_solve
)
map_backward = _operator(
    "map_backward",
    f"(Tensor probabilities, Tensor grad, {_SCHEMA}, bool wants_orders) -> (Tensor, Tensor)",
    _fake_map_backward,
)
class_loss = _operator(
    "class_loss",
    f"(Tensor logits, Tensor targets, {_SCHEMA}, str nonconcave, int ignore_index, str reduction, bool wants_slopes)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
    _fake_class_loss,
)
class_loss_backward = _operator(
    "class_loss_backward",
    f"(Tensor logits, Tensor targets, Tensor states, Tensor grad, {_SCHEMA}, int ignore_index) -> Tensor",
    _like,
)
