"""The torch operators behind every map and loss: one schema each, answered by whichever code `_backend` names.

q, r and temperature are tensors that broadcast to [..., 1]. Their values are checked here, where no traced or batched
tensor is in the way, and a compiler cannot drop the check.
"""

from typing import Any

import torch
from torch import Tensor

from sharmix import _torch_solver
from sharmix._arguments import checked_classes, checked_floats, checked_number, checked_values, float_tensor
from sharmix._backend import backend, kernel
from sharmix._cpu import Orders
from sharmix._sensitivity import ConjugateSensitivity, MapSensitivity

_STATE = 4  # numbers of a row: its maximum, 1/T₀, scale and total

torch.library.define(
    "sharmix::solve",
    "(Tensor logits, Tensor q, Tensor r, Tensor temperature, str nonconcave) -> (Tensor, Tensor)",
    tags=torch.Tag.pt2_compliant_tag,
)
torch.library.define(
    "sharmix::map_backward",
    "(Tensor probabilities, Tensor grad, Tensor q, Tensor r, Tensor temperature, bool wants_parameters)"
    " -> (Tensor, Tensor)",
    tags=torch.Tag.pt2_compliant_tag,
)

torch.library.define(
    "sharmix::class_loss",
    "(Tensor logits, Tensor targets, Tensor q, Tensor r, Tensor temperature, int ignore_index, str nonconcave,"
    " bool wants_slopes) -> (Tensor, Tensor, Tensor)",
    tags=torch.Tag.pt2_compliant_tag,
)
torch.library.define(
    "sharmix::class_loss_backward",
    "(Tensor logits, Tensor targets, Tensor states, Tensor grad, Tensor q, Tensor r, Tensor temperature,"
    " int ignore_index) -> Tensor",
    tags=torch.Tag.pt2_compliant_tag,
)

_register_fake: Any = torch.library.register_fake

solve = torch.ops.sharmix.solve.default
map_backward = torch.ops.sharmix.map_backward.default
class_loss = torch.ops.sharmix.class_loss.default
class_loss_backward = torch.ops.sharmix.class_loss_backward.default


def readable(logits: Tensor, dim: int) -> Tensor:
    """Logits of a type that the operators answer well: Triton reads half precision itself, the others have it widened.

    Raises:
        TypeError, IndexError, ValueError: as for `checked_floats`.
    """
    checked_floats(logits, "logits", dim)
    return logits if backend(logits.device) == "triton" else float_tensor(logits, "logits", dim)


@torch.library.impl("sharmix::solve", "default")
def _solve(logits: Tensor, q: Tensor, r: Tensor, temperature: Tensor, nonconcave: str) -> tuple[Tensor, Tensor]:
    """p* [..., classes] and its conjugate [...] of logits measured from their row's largest."""
    orders = _checked_orders(logits, q, r, temperature)
    if nonconcave == "error":
        _refuse_nonconcave(orders)
    found = _kernel_for(logits, orders)
    if found is not None:
        p, conjugate = found.solve(logits, orders)
        return p, conjugate
    rows = logits.reshape(-1, logits.shape[-1])
    probabilities, conjugate = _torch_solver.solve(rows, *_columns(rows, orders))
    return probabilities.reshape(logits.shape), conjugate.reshape(logits.shape[:-1])


@torch.library.impl("sharmix::map_backward", "default")
def _map_backward(
    probabilities: Tensor, grad: Tensor, q: Tensor, r: Tensor, temperature: Tensor, wants_parameters: bool
) -> tuple[Tensor, Tensor]:
    """(∂p/∂z) grad [..., classes], and (∂p/∂θ)·grad by q, r and T₀ [..., 3], or [..., 0] if it is not wanted."""
    orders = _checked_orders(probabilities, q, r, temperature)
    found = _kernel_for(probabilities, orders)
    if found is not None:
        return found.map_backward(probabilities, grad, orders, wants_parameters)
    at = MapSensitivity(probabilities, q, r, temperature)
    slopes = (at.wrt_q(), at.wrt_r(), at.wrt_temperature()) if wants_parameters else ()
    along = [(grad * slope).sum(-1) for slope in slopes]
    by_parameters = torch.stack(along, -1) if along else at.p.new_empty(*grad.shape[:-1], 0)
    return at.logit_product(grad).to(probabilities.dtype), by_parameters


@torch.library.impl("sharmix::class_loss", "default")
def _class_loss(
    logits: Tensor,
    targets: Tensor,
    q: Tensor,
    r: Tensor,
    temperature: Tensor,
    ignore_index: int,
    nonconcave: str,
    wants_slopes: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss of each row whose target is a class, 0 where that is `ignore_index`.

    Also what its backward pass needs of each row, [..., 4], and its slopes by q, r and T₀ [..., 3], or [..., 0] if they
    are not wanted.
    """
    orders = _checked_orders(logits, q, r, temperature)
    if nonconcave == "error":
        _refuse_nonconcave(orders)
    found = _kernel_for(logits, orders)
    if found is not None:
        return found.class_loss(logits, targets, orders, ignore_index, wants_slopes)
    counted, indices = targets != ignore_index, checked_classes(targets, logits.shape[-1], ignore_index)
    logits = torch.where(counted.unsqueeze(-1), logits, 0)
    p, conjugate = solve(logits, q, r, temperature, nonconcave)
    agreement = (logits.gather(-1, indices.unsqueeze(-1)) - logits.amax(-1, keepdim=True)).squeeze(-1)
    loss = torch.where(counted, conjugate - agreement, 0)
    at = ConjugateSensitivity(p, q, r, temperature)
    slopes = (at.conjugate_wrt_q(), at.conjugate_wrt_r(), at.conjugate_wrt_temperature())
    by_parameter = torch.cat([slope.expand(*loss.shape, 1) for slope in slopes], -1) * counted.unsqueeze(-1)
    states = logits.new_empty((*loss.shape, _STATE), dtype=torch.float64)  # the backward pass solves again
    return loss - loss.clamp_max(0), states, by_parameter[..., : 3 if wants_slopes else 0].contiguous()


@torch.library.impl("sharmix::class_loss_backward", "default")
def _class_loss_backward(
    logits: Tensor,
    targets: Tensor,
    states: Tensor,
    grad: Tensor,
    q: Tensor,
    r: Tensor,
    temperature: Tensor,
    ignore_index: int,
) -> Tensor:
    """grad (p − y), for grad [...], or one for all rows."""
    orders = _checked_orders(logits, q, r, temperature)
    found = _kernel_for(logits, orders)
    if found is not None:
        return found.class_loss_backward(logits, targets, states, grad, orders[0], ignore_index)
    counted, indices = (targets != ignore_index).unsqueeze(-1), checked_classes(targets, logits.shape[-1], ignore_index)
    p, _ = solve(torch.where(counted, logits, 0), q, r, temperature, "global")
    error = p.scatter_add(-1, indices.unsqueeze(-1), -torch.ones_like(p[..., :1]))
    return torch.where(counted, grad.unsqueeze(-1) * error, 0).to(logits.dtype)


@_register_fake("sharmix::class_loss")
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
    rows = logits.shape[:-1]
    states = logits.new_empty((*rows, _STATE), dtype=torch.float64)
    wide = _wide(logits.dtype)
    return (
        logits.new_empty(rows, dtype=wide),
        states,
        logits.new_empty((*rows, 3 if wants_slopes else 0), dtype=wide),
    )


@_register_fake("sharmix::class_loss_backward")
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
    return logits.new_empty(logits.shape)


@_register_fake("sharmix::solve")
def _(logits: Tensor, q: Tensor, r: Tensor, temperature: Tensor, nonconcave: str) -> tuple[Tensor, Tensor]:
    return logits.new_empty(logits.shape), logits.new_empty(logits.shape[:-1], dtype=_wide(logits.dtype))


@_register_fake("sharmix::map_backward")
def _(
    probabilities: Tensor, grad: Tensor, q: Tensor, r: Tensor, temperature: Tensor, wants_parameters: bool
) -> tuple[Tensor, Tensor]:
    shape = (*probabilities.shape[:-1], 3 if wants_parameters else 0)
    by_parameters = probabilities.new_empty(shape, dtype=_wide(probabilities.dtype))
    return probabilities.new_empty(probabilities.shape), by_parameters


@torch.library.register_vmap("sharmix::solve")
def _(info, in_dims, logits, q, r, temperature, nonconcave):  # type: ignore[no-untyped-def]
    return solve(*_batch_first(info.batch_size, in_dims, (logits, q, r, temperature)), nonconcave), (0, 0)


@torch.library.register_vmap("sharmix::map_backward")
def _(info, in_dims, probabilities, grad, q, r, temperature, wants_parameters):  # type: ignore[no-untyped-def]
    tensors = _batch_first(info.batch_size, in_dims, (probabilities, grad, q, r, temperature))
    return map_backward(*tensors, wants_parameters), (0, 0)


def _batch_first(size: int, in_dims: tuple[int | None, ...], tensors: tuple[Tensor, ...]) -> list[Tensor]:
    """The tensors with their batch as one more row dimension; the first one has all row dimensions."""
    dims = tensors[0].dim() + (in_dims[0] is None)
    batched = []
    for tensor, dim in zip(tensors, in_dims, strict=False):
        tensor = tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
        batched.append(tensor.reshape(size, *[1] * (dims - tensor.dim()), *tensor.shape[1:]))
    return batched


def _kernel_for(rows: Tensor, orders: Orders) -> Any:
    """The kernel's module if it takes these rows, else None."""
    found = kernel(rows.device)
    return found if found is not None and rows.numel() and found.takes(rows, orders) else None


def _checked_orders(rows: Tensor, q: Tensor, r: Tensor, temperature: Tensor) -> Orders:
    shape = rows.shape[:-1]
    return _checked(q, "q", shape), _checked(r, "r", shape), _checked(temperature, "temperature", shape)


def _checked(parameter: Tensor, name: str, rows: torch.Size) -> float | Tensor:
    if parameter.numel() == 1:
        return checked_number(parameter.item(), name)
    return checked_values(parameter, name).double().expand(*rows, 1).reshape(-1, 1).contiguous()


def _columns(rows: Tensor, orders: Orders) -> list[Tensor]:
    return [
        order if isinstance(order, Tensor) else rows.new_full((len(rows), 1), order, dtype=torch.float64)
        for order in orders
    ]


def _wide(dtype: torch.dtype) -> torch.dtype:
    """What losses and conjugates of logits of a type come in: float32 at least."""
    return torch.promote_types(dtype, torch.float32)


def _refuse_nonconcave(orders: Orders) -> None:
    q, r = torch.broadcast_tensors(*(torch.as_tensor(order, dtype=torch.float64) for order in orders[:2]))  # type: ignore[no-untyped-call]
    outside = ~_torch_solver.is_concave(q, r)
    if outside.any():
        q_value, r_value = q[outside][0].item(), r[outside][0].item()
        raise ValueError(
            f"(q, r) = ({q_value:g}, {r_value:g}) lies outside the concave region r >= 2 - 1/q = {2 - 1 / q_value:g}, "
            "where the map may jump; raise r, or ask for nonconcave='global'"
        )
