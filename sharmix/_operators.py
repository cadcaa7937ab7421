"""The torch operators behind every map and loss: one schema each, answered by whichever code `_backend` names.

q, r and temperature are tensors that broadcast to [..., 1]. Their values are checked here, where no traced or batched
tensor is in the way, and a compiler cannot drop the check.
"""

from typing import Any

import torch
from torch import Tensor

from sharmix._arguments import checked_floats, float_tensor
from sharmix._backend import answering, backend
from sharmix._orders import checked_orders

_ORDERS = "Tensor q, Tensor r, Tensor temperature"
_SCHEMAS = {
    "solve": f"(Tensor logits, {_ORDERS}, str nonconcave) -> (Tensor, Tensor)",
    "map_backward": f"(Tensor probabilities, Tensor grad, {_ORDERS}, bool wants_parameters) -> (Tensor, Tensor)",
    "class_loss": f"(Tensor logits, Tensor targets, {_ORDERS}, int ignore_index, str nonconcave, bool wants_slopes)"
    " -> (Tensor, Tensor, Tensor)",
    "class_loss_backward": f"(Tensor logits, Tensor targets, Tensor states, Tensor grad, {_ORDERS}, int ignore_index)"
    " -> Tensor",
}
for _name, _schema in _SCHEMAS.items():
    torch.library.define(f"sharmix::{_name}", _schema, tags=torch.Tag.pt2_compliant_tag)

solve: Any = torch.ops.sharmix.solve.default
map_backward: Any = torch.ops.sharmix.map_backward.default
class_loss: Any = torch.ops.sharmix.class_loss.default
class_loss_backward: Any = torch.ops.sharmix.class_loss_backward.default


def readable(logits: Tensor, dim: int) -> Tensor:
    """Logits of a type that the operators answer well: Triton reads half precision itself, the others have it widened.

    Raises:
        TypeError, IndexError, ValueError: as for `checked_floats`.
    """
    checked_floats(logits, "logits", dim)
    return logits if backend(logits.device) == "triton" else float_tensor(logits, "logits", dim)


@torch.library.impl("sharmix::solve", "default")
def _(logits: Tensor, q: Tensor, r: Tensor, temperature: Tensor, nonconcave: str) -> tuple[Tensor, Tensor]:
    orders = checked_orders(logits.shape[:-1], q, r, temperature, nonconcave)
    return answering(logits, orders).solve(logits, orders)


@torch.library.impl("sharmix::map_backward", "default")
def _(
    probabilities: Tensor, grad: Tensor, q: Tensor, r: Tensor, temperature: Tensor, wants_parameters: bool
) -> tuple[Tensor, Tensor]:
    orders = checked_orders(probabilities.shape[:-1], q, r, temperature, "global")
    return answering(probabilities, orders).map_backward(probabilities, grad, orders, wants_parameters)


@torch.library.impl("sharmix::class_loss", "default")
def _(
    logits: Tensor,
    targets: Tensor,
    q: Tensor,
    r: Tensor,
    temperature: Tensor,
    ignore_index: int,
    nonconcave: str,
    wants_slopes: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    orders = checked_orders(logits.shape[:-1], q, r, temperature, nonconcave)
    return answering(logits, orders).class_loss(logits, targets, orders, ignore_index, wants_slopes)


@torch.library.impl("sharmix::class_loss_backward", "default")
def _(
    logits: Tensor,
    targets: Tensor,
    states: Tensor,
    grad: Tensor,
    q: Tensor,
    r: Tensor,
    temperature: Tensor,
    ignore_index: int,
) -> Tensor:
    orders = checked_orders(logits.shape[:-1], q, r, temperature, "global")
    return answering(logits, orders).class_loss_backward(logits, targets, states, grad, orders, ignore_index)


def _wide(values: Tensor, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return values.new_empty(shape, dtype=torch.promote_types(values.dtype, dtype))


def _fake_solve(logits: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    return logits.new_empty(logits.shape), _wide(logits, *logits.shape[:-1])


def _fake_map_backward(probabilities: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    along = _wide(probabilities, *probabilities.shape[:-1], 3 if others[-1] else 0)
    return probabilities.new_empty(probabilities.shape), along


def _fake_class_loss(logits: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    rows = logits.shape[:-1]
    states = _wide(logits, *rows, 4, dtype=torch.float64)
    return _wide(logits, *rows), states, _wide(logits, *rows, 3 if others[-1] else 0)


def _fake_class_loss_backward(logits: Tensor, *_: object) -> Tensor:
    return logits.new_empty(logits.shape)


torch.library.register_fake("sharmix::solve", _fake_solve)
torch.library.register_fake("sharmix::map_backward", _fake_map_backward)
torch.library.register_fake("sharmix::class_loss", _fake_class_loss)
torch.library.register_fake("sharmix::class_loss_backward", _fake_class_loss_backward)


def _vmap_solve(
    info: Any, in_dims: tuple[int | None, ...], *inputs: Any
) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
    return solve(*_batch_first(info.batch_size, in_dims[:4], inputs[:4]), inputs[-1]), (0, 0)


def _vmap_map_backward(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, tuple[int, int]]:
    return map_backward(*_batch_first(info.batch_size, in_dims[:5], inputs[:5]), inputs[-1]), (0, 0)


torch.library.register_vmap("sharmix::solve", _vmap_solve)
torch.library.register_vmap("sharmix::map_backward", _vmap_map_backward)


def _batch_first(size: int, in_dims: tuple[int | None, ...], tensors: tuple[Tensor, ...]) -> list[Tensor]:
    """The tensors with their batch as one more row dimension; the first one has all row dimensions."""
    dims = tensors[0].dim() + (in_dims[0] is None)
    batched = []
    for tensor, dim in zip(tensors, in_dims, strict=True):
        tensor = tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
        batched.append(tensor.reshape(size, *[1] * (dims - tensor.dim()), *tensor.shape[1:]))
    return batched
