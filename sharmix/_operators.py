"""The torch operators behind every map and loss: one schema each, answered by whichever code `_backend` names.

q, r and temperature are numbers, or tensors that broadcast to [..., 1]; to the operators proper they are tensors. Their
values are checked here, where no traced or batched tensor is in the way, and a compiler cannot drop the check.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from sharmix._arguments import Parameter, checked_floats, float_tensor
from sharmix._backend import answering, backend
from sharmix._orders import checked_orders

_BATCHED = torch._C._dispatch_key_parse("Batched")
_ORDERS = "Tensor q, Tensor r, Tensor temperature"
_SCHEMAS = {
    "solve": f"(Tensor logits, {_ORDERS}, str nonconcave) -> (Tensor, Tensor)",
    "map_backward": f"(Tensor probabilities, Tensor grad, {_ORDERS}, bool wants_parameters) -> (Tensor, Tensor)",
    "class_loss": f"(Tensor logits, Tensor targets, {_ORDERS}, int ignore_index, str nonconcave, bool wants_slopes)"
    " -> (Tensor, Tensor, Tensor)",
    "class_loss_backward": f"(Tensor logits, Tensor targets, Tensor states, Tensor grad, {_ORDERS}, int ignore_index)"
    " -> Tensor",
}


def readable(logits: Tensor, dim: int) -> Tensor:
    """Logits of a type that the operators answer well: Triton reads half precision itself, the others have it widened.

    Raises:
        TypeError, IndexError, ValueError: as for `checked_floats`.
    """
    checked_floats(logits, "logits", dim)
    return logits if backend(logits.device) == "triton" else float_tensor(logits, "logits", dim)


def _solve(
    logits: Tensor, q: Parameter, r: Parameter, temperature: Parameter, nonconcave: str
) -> tuple[Tensor, Tensor]:
    orders = checked_orders(logits.shape[:-1], q, r, temperature, nonconcave)
    return answering(logits, orders).solve(logits, orders)


def _map_backward(
    probabilities: Tensor, grad: Tensor, q: Parameter, r: Parameter, temperature: Parameter, wants_parameters: bool
) -> tuple[Tensor, Tensor]:
    orders = checked_orders(probabilities.shape[:-1], q, r, temperature, "global")
    return answering(probabilities, orders).map_backward(probabilities, grad, orders, wants_parameters)


def _class_loss(
    logits: Tensor,
    targets: Tensor,
    q: Parameter,
    r: Parameter,
    temperature: Parameter,
    ignore_index: int,
    nonconcave: str,
    wants_slopes: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    orders = checked_orders(logits.shape[:-1], q, r, temperature, nonconcave)
    return answering(logits, orders).class_loss(logits, targets, orders, ignore_index, wants_slopes)


def _class_loss_backward(
    logits: Tensor,
    targets: Tensor,
    states: Tensor,
    grad: Tensor,
    q: Parameter,
    r: Parameter,
    temperature: Parameter,
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


def _vmap_solve(
    info: Any, in_dims: tuple[int | None, ...], *inputs: Any
) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
    return solve(*_batch_first(info.batch_size, in_dims[:4], inputs[:4]), inputs[-1]), (0, 0)


def _vmap_map_backward(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, tuple[int, int]]:
    return map_backward(*_batch_first(info.batch_size, in_dims[:5], inputs[:5]), inputs[-1]), (0, 0)


def _batch_first(size: int, in_dims: tuple[int | None, ...], tensors: tuple[Tensor, ...]) -> list[Tensor]:
    """The tensors with their batch as one more row dimension; the first one has all row dimensions."""
    dims = tensors[0].dim() + (in_dims[0] is None)
    batched = []
    for tensor, dim in zip(tensors, in_dims, strict=True):
        tensor = tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
        batched.append(tensor.reshape(size, *[1] * (dims - tensor.dim()), *tensor.shape[1:]))
    return batched


def function_transforms_active() -> bool:
    """Whether the caller is inside `torch.func`; the same question `torch.autograd.Function.apply` asks."""
    return bool(torch._C._are_functorch_transforms_active())


def watched(inputs: tuple[Any, ...]) -> bool:
    """Whether a tracer, a transform or a tensor's own class looks on, to which the computation must be an operator."""
    return (
        torch.compiler.is_compiling()
        or function_transforms_active()
        or is_in_torch_dispatch_mode()
        or any(isinstance(one, Tensor) and _is_unusual(one) for one in inputs)
    )


def _is_unusual(tensor: Tensor) -> bool:
    """Whether it is of a class of its own, or a batch that `is_grads_batched` put together."""
    return type(tensor) not in (Tensor, nn.Parameter) or bool(torch._C._dispatch_keys(tensor).has(_BATCHED))


def _boxed(one: Any) -> Any:
    """A number as a tensor; float64, so that 1 + 1e-9 stays apart from 1."""
    return torch.scalar_tensor(one, dtype=torch.float64) if isinstance(one, float) else one


def _operator(name: str, computation: Callable[..., Any], fake: Callable[..., Any]) -> Callable[..., Any]:
    """The operator; where nothing looks on without its dispatch, which costs a quarter of softmax on a small batch."""
    torch.library.define(f"sharmix::{name}", _SCHEMAS[name], tags=torch.Tag.pt2_compliant_tag)
    torch.library.impl(f"sharmix::{name}", "default", computation)
    torch.library.register_fake(f"sharmix::{name}", fake)
    dispatched = getattr(torch.ops.sharmix, name).default

    def call(*inputs: Any) -> Any:
        return dispatched(*map(_boxed, inputs)) if watched(inputs) else computation(*inputs)

    return call


solve = _operator("solve", _solve, _fake_solve)
map_backward = _operator("map_backward", _map_backward, _fake_map_backward)
class_loss = _operator("class_loss", _class_loss, _fake_class_loss)
class_loss_backward = _operator("class_loss_backward", _class_loss_backward, _fake_class_loss_backward)
torch.library.register_vmap("sharmix::solve", _vmap_solve)
torch.library.register_vmap("sharmix::map_backward", _vmap_map_backward)
