"""The map and its loss in plain torch, on any device: what answers where no kernel does, and the kernels' reference."""

import torch
from torch import Tensor

from sharmix._arguments import checked_classes
from sharmix._equation import Equation
from sharmix._global_maximum import global_maximum
from sharmix._knots import from_last_knot
from sharmix._orders import Orders, columns, is_concave
from sharmix._sensitivity import ConjugateSensitivity, MapSensitivity


def takes(logits: Tensor, orders: Orders) -> bool:
    """Plain torch takes whatever there is."""
    return True


def solve(logits: Tensor, orders: Orders) -> tuple[Tensor, Tensor]:
    """See `_backend.Code`."""
    rows = logits.reshape(-1, logits.shape[-1])
    p, conjugate = _solve_rows(rows.double(), *columns(orders, rows))
    wide = torch.promote_types(logits.dtype, torch.float32)
    return p.to(logits.dtype).reshape(logits.shape).contiguous(), conjugate.to(wide).reshape(logits.shape[:-1])


def _solve_rows(x: Tensor, q: Tensor, r: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
    equation = Equation((x - x.amax(-1, keepdim=True)) / temperature, q, r)
    concave = is_concave(q, r).squeeze(-1)
    if concave.all():
        y = equation.root(*equation.bracket())
    else:
        y = torch.zeros_like(q)
        some = equation.select(concave)
        y[concave] = some.root(*some.bracket())
        y[~concave] = global_maximum(equation.select(~concave))
    solution = equation.at(y)
    p, conjugate = solution.probabilities, solution.objective()
    steep = (equation.delta > 1).squeeze(-1)
    if steep.any():
        solution = from_last_knot(equation.select(steep), y[steep])
        p[steep], conjugate[steep] = solution.probabilities, solution.objective()
    return p, conjugate * temperature


def map_backward(probabilities: Tensor, grad: Tensor, orders: Orders, wants_parameters: bool) -> tuple[Tensor, Tensor]:
    """See `_backend.Code`."""
    at = MapSensitivity(probabilities, *_shaped(orders, probabilities))
    grad_logits = at.logit_product(grad).to(probabilities.dtype).contiguous()
    if not wants_parameters:
        return grad_logits, at.p.new_empty(*grad.shape[:-1], 0)
    along = [(grad * slope).sum(-1) for slope in (at.wrt_q(), at.wrt_r(), at.wrt_temperature())]
    return grad_logits, torch.stack(along, -1)


def class_loss(
    logits: Tensor, targets: Tensor, orders: Orders, ignore_index: int, wants_slopes: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """See `_backend.Code`; the state is left empty, and the backward pass solves again."""
    counted, indices = targets != ignore_index, checked_classes(targets, logits.shape[-1], ignore_index)
    logits = torch.where(counted.unsqueeze(-1), logits, 0)
    p, conjugate = solve(logits, orders)
    agreement = (logits.gather(-1, indices.unsqueeze(-1)) - logits.amax(-1, keepdim=True)).squeeze(-1)
    loss = torch.where(counted, conjugate - agreement, 0)
    loss = loss - loss.clamp_max(0)  # rounding can leave −1e-17 at p = y
    states = logits.new_empty((*loss.shape, 4), dtype=torch.float64)
    if not wants_slopes:
        return loss, states, loss.new_empty(*loss.shape, 0)
    slopes = ConjugateSensitivity(p, *_shaped(orders, p)).conjugate_slopes()
    return loss, states, slopes * counted.unsqueeze(-1)


def class_loss_backward(
    logits: Tensor, targets: Tensor, states: Tensor, grad: Tensor, orders: Orders, ignore_index: int
) -> Tensor:
    """See `_backend.Code`."""
    counted, indices = (targets != ignore_index).unsqueeze(-1), checked_classes(targets, logits.shape[-1], ignore_index)
    p, _ = solve(torch.where(counted, logits, 0), orders)
    error = p.scatter_add(-1, indices.unsqueeze(-1), -torch.ones_like(p[..., :1]))
    return torch.where(counted, grad.unsqueeze(-1) * error, 0).to(logits.dtype)


def _shaped(orders: Orders, values: Tensor) -> list[Tensor]:
    """Each order as [..., 1] for values [..., classes]."""
    rows = values.reshape(-1, values.shape[-1])
    return [order.reshape(*values.shape[:-1], 1) for order in columns(orders, rows)]
