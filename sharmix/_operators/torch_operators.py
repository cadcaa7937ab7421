"""The operators for callers that torch compiles, traces or transforms: schema, computation, shapes, vmap rule.

Each of q, r and T₀ is given as a tensor that broadcasts to [..., 1] or as a number, and None in the other's place. A
number as a tensor on the CPU would keep compiled code out of a CUDA graph. Their values are checked inside the
operators, where they can be read, and where a compiler cannot drop the check.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from sharmix._arguments import Order, as_tensor, define_operator
from sharmix._operators.backend import Implementation, select_implementation
from sharmix._operators.orders import Orders, checked_orders, solving_dtype
from sharmix._private_torch import varies

_ORDERS = ("q", "r", "temperature")
_SCHEMA = "Tensor? q, Tensor? r, Tensor? temperature, float? q_number, float? r_number, float? temperature_number"


def separated(orders: Sequence[Order]) -> tuple[Any, ...]:
    """q, r and T₀ as six inputs of an operator: the tensors, then the numbers, and None where there is none."""
    orders = [order if isinstance(order, Tensor) or not varies(order) else as_tensor(order) for order in orders]
    tensors = [order if isinstance(order, Tensor) else None for order in orders]
    return *tensors, *[None if isinstance(order, Tensor) else order for order in orders]


def joined(inputs: Sequence[Any]) -> Any:
    """q, r and T₀ from the inputs of an operator that begin with `separated` ones."""
    return tuple(inputs[i] if inputs[i + 3] is None else inputs[i + 3] for i in range(3))


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
    (*_, reduction, wants_slopes), rows = others, logits.shape[:-1]
    loss = _wide(logits) if reduction != "none" else _wide(logits, *rows)
    states = _wide(logits, *rows, 4, dtype=solving_dtype(logits.device))
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


def _operator(name: str, schema: str, compute: Callable[..., Any], shapes: Callable[..., Any]) -> Callable[..., Any]:
    """The operator `name`.

    `compute` gets the implementation, and then the operator's inputs with the orders as one tuple of checked values.
    """
    arguments = re.findall(r"(\w+)[,)]", schema.split("->")[0])
    last_order = "nonconcave" if "nonconcave" in arguments else "temperature_number"  # which the orders' check takes
    first, stop = arguments.index("q"), arguments.index(last_order) + 1

    def computed(*inputs: Any) -> Any:
        orders = checked_orders(inputs[0], joined(inputs[first:]), *inputs[first + 6 : stop])
        return compute(select_implementation(inputs[0], orders), *inputs[:first], orders, *inputs[stop:])

    operator = define_operator(name, schema, computed, shapes)
    if "reduction" not in arguments:  # which would reduce over the batch
        torch.library.register_vmap(f"sharmix::{name}", _batched_as_rows(name, arguments))
    return operator


def _solve(implementation: Implementation, logits: Tensor, orders: Orders, wants_conjugate: bool) -> Any:
    p, conjugate, _ = implementation.solve(logits, orders, wants_conjugate, keeps=False)
    return p, _wide(p, 0) if conjugate is None else conjugate


def _map_backward(implementation: Implementation, p: Tensor, grad: Tensor, orders: Orders, wants_slopes: bool) -> Any:
    by_logits, slopes = implementation.map_backward(p, grad, orders, "rows" if wants_slopes else "none")
    return by_logits, _wide(p, 0) if slopes is None else slopes


def _class_loss(
    implementation: Implementation,
    logits: Tensor,
    targets: Tensor,
    orders: Orders,
    ignore_index: int,
    reduction: str,
    wants_slopes: bool,
) -> Any:
    kind = "rows" if wants_slopes else "none"
    found = implementation.class_loss(logits, targets, orders, ignore_index, reduction, kind, keeps="states")
    loss, states, _, slopes, divisor = found
    divisor = divisor if isinstance(divisor, Tensor) else loss.new_full((), divisor)
    return loss, states, _wide(loss, 0) if slopes is None else slopes, divisor


def _class_loss_backward(
    implementation: Implementation,
    logits: Tensor,
    targets: Tensor,
    states: Tensor,
    grad: Tensor,
    orders: Orders,
    ignore_index: int,
) -> Tensor:
    return implementation.class_loss_backward(logits, targets, states, grad, orders, ignore_index, divisor=1.0)


solve = _operator(
    "solve",
    f"(Tensor logits, {_SCHEMA}, str nonconcave, bool wants_conjugate) -> (Tensor, Tensor)",
    _solve,
    _fake_solve,
)
map_backward = _operator(
    "map_backward",
    f"(Tensor probabilities, Tensor grad, {_SCHEMA}, bool wants_slopes) -> (Tensor, Tensor)",
    _map_backward,
    _fake_map_backward,
)
class_loss = _operator(
    "class_loss",
    f"(Tensor logits, Tensor targets, {_SCHEMA}, str nonconcave, int ignore_index, str reduction, bool wants_slopes)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
    _class_loss,
    _fake_class_loss,
)
class_loss_backward = _operator(
    "class_loss_backward",
    f"(Tensor logits, Tensor targets, Tensor states, Tensor grad, {_SCHEMA}, int ignore_index) -> Tensor",
    _class_loss_backward,
    _like,
)
