"""The map and its loss in plain torch, on any device: used where there is no kernel, and the reference for kernels.

The functions are those of `backend.Implementation`. The backward pass of the loss solves again.
"""

import math

import torch
from torch import Tensor

from sharmix._arguments import checked_classes, widened
from sharmix._mathematics.equation import Equation
from sharmix._mathematics.global_maximum import global_maximum
from sharmix._mathematics.knots import from_last_knot
from sharmix._mathematics.sensitivity import ConjugateSensitivity, MapSensitivity
from sharmix._operators.orders import LossOrders, Orders, columns, is_concave


def solve(logits: Tensor, orders: Orders, wants_conjugate: bool = True) -> tuple[Tensor, Tensor]:
    if logits.shape[-1] == 0:
        return torch.empty_like(logits), logits.new_zeros(logits.shape[:-1] if wants_conjugate else 0)
    rows = logits.reshape(-1, logits.shape[-1])
    p, conjugate = _solve_rows(rows.double(), *columns(orders, rows))
    wide = torch.promote_types(logits.dtype, torch.float32)
    conjugate = conjugate.to(wide).reshape(logits.shape[:-1]) if wants_conjugate else conjugate.new_empty(0)
    probabilities = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)  # no view: it may be changed
    probabilities.view(rows.shape).copy_(p)
    return probabilities, conjugate


def _solve_rows(x: Tensor, q: Tensor, r: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
    equation = Equation((x - x.amax(-1, keepdim=True)) / temperature, q, r)
    concave = torch.as_tensor(is_concave(q, r)).squeeze(-1)
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


def map_backward(probabilities: Tensor, grad: Tensor, orders: Orders, wants_orders: bool) -> tuple[Tensor, Tensor]:
    if probabilities.shape[-1] == 0:
        return torch.empty_like(grad), grad.new_zeros((*grad.shape[:-1], 3) if wants_orders else 0)
    grad = torch.where(probabilities > 0, grad, 0)  # as the kernels: at a probability of 0 it may be infinite
    at = MapSensitivity(probabilities.double(), *shaped(orders, probabilities))  # its powers leave float32's range
    grad_logits = at.logit_product(grad.double()).to(probabilities.dtype).contiguous()
    wide = torch.promote_types(probabilities.dtype, torch.float32)
    if not wants_orders:
        return grad_logits, probabilities.new_empty(0, dtype=wide)
    along = [(grad * slope).sum(-1) for slope in (at.wrt_q(), at.wrt_r(), at.wrt_temperature())]
    return grad_logits, torch.stack(along, -1).to(wide)


def class_loss(
    logits: Tensor, targets: Tensor, orders: LossOrders, ignore_index: int, reduction: str, wants_slopes: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    counted, indices = targets != ignore_index, checked_classes(targets, logits.shape[-1], ignore_index)
    logits, (q, r, temperature) = torch.where(counted.unsqueeze(-1), widened(logits), 0), orders
    of_target = logits.gather(-1, indices.unsqueeze(-1)).squeeze(-1)
    if r is None:
        conjugate = _powers(logits, q, temperature, q / (q - 1)).sum(-1) / q
        rows = conjugate - of_target + (temperature + 1 / q) / (q - 1)
        return reduced_loss(rows, logits.new_empty(0), None, counted, reduction)
    orders = q, r, temperature
    p, conjugate = solve(logits, orders)
    states = logits.new_full((*conjugate.shape, 4), math.nan, dtype=torch.float64)  # a kernel's gradient is then NaN
    slopes = ConjugateSensitivity(p, *shaped(orders, p)).conjugate_slopes() if wants_slopes else None
    return reduced_loss(conjugate - (of_target - logits.amax(-1)), states, slopes, counted, reduction)


def reduced_loss(
    rows: Tensor, states: Tensor, slopes: Tensor | None, counted: Tensor, reduction: str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What `class_loss` returns, from the loss [...] of each row and its slopes by q, r and T₀ [..., 3]."""
    rows = torch.where(counted, rows - rows.clamp_max(0), 0)  # rounding can leave −1e-17 at p = y
    loss, divisor = total_and_divisor(rows, counted, reduction)
    return loss, states, rows.new_empty(0) if slopes is None else slopes * counted.unsqueeze(-1), divisor


def total_and_divisor(rows: Tensor, counted: Tensor, reduction: str) -> tuple[Tensor, Tensor]:
    """The reduced loss from the losses [...] of rows, 0 where they are not counted, and the divisor of their sum."""
    divisor = counted.sum().to(rows.dtype) if reduction == "mean" else rows.new_ones(())
    return rows if reduction == "none" else rows.sum() / divisor, divisor


def class_loss_backward(
    logits: Tensor, targets: Tensor, states: Tensor, grad: Tensor, orders: LossOrders, ignore_index: int
) -> Tensor:
    counted, indices = targets != ignore_index, checked_classes(targets, logits.shape[-1], ignore_index)
    finite, (q, r, temperature) = torch.where(counted.unsqueeze(-1), widened(logits), 0), orders
    p = _powers(finite, q, temperature, 1 / (q - 1)) if r is None else solve(finite, (q, r, temperature))[0]
    error = p.scatter_add(-1, indices.unsqueeze(-1), -torch.ones_like(p[..., :1]))
    return (torch.where(counted, grad, 0).unsqueeze(-1) * error).to(logits.dtype)


def _powers(logits: Tensor, alpha: float | Tensor, tau: float | Tensor, exponent: float | Tensor) -> Tensor:
    return ((alpha - 1) * logits - tau).relu() ** exponent


def shaped(orders: Orders, values: Tensor) -> list[Tensor]:
    """Each order as [..., 1] for values [..., classes]."""
    rows = values.reshape(-1, values.shape[-1])
    return [order.reshape(*values.shape[:-1], 1) for order in columns(orders, rows)]
