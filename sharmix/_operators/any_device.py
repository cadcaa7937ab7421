"""The map and its loss in plain torch, on any device: used where there is no kernel, and the reference for kernels.

The functions are those of `backend.Implementation`. The backward pass of a loss of each row solves again.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sharmix._arguments import widened
from sharmix._mathematics.equation import Equation
from sharmix._mathematics.global_maximum import global_maximum
from sharmix._mathematics.knots import from_last_knot
from sharmix._mathematics.sensitivity import ConjugateSensitivity, MapSensitivity
from sharmix._operators.orders import Orders, Slopes, columns, is_concave, solving_dtype
from sharmix._targets import counted_rows

_MOST_KEPT = 1 << 18  # logits of a loss that keeps its gradient beside them: at most 1 MiB of float32

# δ = q − 1 above which a row is solved once more from a knot. In float32 smaller δ need it, too: if thousands of tied
# logits have just joined the support, the rounding of y changes all their weights in one direction.
_MOST_DELTA = {torch.float64: 1.0, torch.float32: 0.2}


def solve(
    logits: Tensor, orders: Orders, wants_conjugate: bool, keeps: bool = False
) -> tuple[Tensor, Any, Sequence[Tensor]]:
    if logits.shape[-1] == 0:
        return torch.empty_like(logits), logits.new_zeros(logits.shape[:-1]) if wants_conjugate else None, ()
    rows = logits.reshape(-1, logits.shape[-1])
    p, conjugate = _solve_rows(rows.to(solving_dtype(rows.device)), *columns(orders, rows))
    wide = torch.promote_types(logits.dtype, torch.float32)
    probabilities = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)  # no view: it may be changed
    probabilities.view(rows.shape).copy_(p)
    return probabilities, conjugate.to(wide).reshape(logits.shape[:-1]) if wants_conjugate else None, ()


def _solve_rows(x: Tensor, q: Tensor, r: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
    unit = temperature + 0 * (q + r)  # an order of NaN is as a row of NaN
    equation = Equation((x - x.amax(-1, keepdim=True)) / unit, q, r)
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
    steep = (equation.delta > _MOST_DELTA[x.dtype]).squeeze(-1)
    if steep.any():
        solution = from_last_knot(equation.select(steep), y[steep])
        p[steep], conjugate[steep] = solution.probabilities, solution.objective()
    return p, conjugate * temperature


def map_backward(
    probabilities: Tensor, grad: Tensor, orders: Orders, slopes: str, kept: Sequence[Tensor] = ()
) -> tuple[Tensor, Slopes]:
    wide = torch.promote_types(probabilities.dtype, torch.float32)
    if probabilities.shape[-1] == 0:
        of_rows = grad.new_zeros((*grad.shape[:-1], 3), dtype=wide)
        return torch.empty_like(grad), of_kind(of_rows, slopes) if slopes != "none" else None
    grad = torch.where(probabilities > 0, grad, 0)  # as the kernels: at a probability of 0 it may be infinite
    dtype = solving_dtype(probabilities.device)  # for large q its powers leave float32's range
    at = MapSensitivity(probabilities.to(dtype), *shaped(orders, probabilities))
    by_logits = at.logit_product(grad.to(dtype)).to(probabilities.dtype).contiguous()
    if slopes == "none":
        return by_logits, None
    along = [(grad * slope).sum(-1) for slope in (at.wrt_q(), at.wrt_r(), at.wrt_temperature())]
    return by_logits, of_kind(torch.stack(along, -1).to(wide), slopes)


def of_kind(of_rows: Tensor, slopes: str, divisor: float | Tensor = 1.0) -> Slopes:
    """Slopes [..., 3] of each row as they are, or for `sums` their three sums over the rows, over a divisor."""
    return of_rows.flatten(0, -2).sum(0) / divisor if slopes == "sums" else of_rows


def keeps_gradient(logits: Tensor) -> bool:
    return logits.numel() <= _MOST_KEPT


def scaled(gradient: Tensor, factor: Tensor) -> Tensor:
    return gradient.mul_(factor)


def class_loss(
    logits: Tensor, targets: Tensor, orders: Orders, ignore_index: int, reduction: str, slopes: str, keeps: str
) -> tuple[Tensor, Tensor | None, Tensor | None, Slopes, Tensor]:
    logits, indices, counted = counted_rows(widened(logits), targets, ignore_index)
    p, conjugate, _ = solve(logits, orders, True)
    of_target = logits.gather(-1, indices.unsqueeze(-1)).squeeze(-1)
    loss, divisor = reduced(conjugate - (of_target - logits.amax(-1)), counted, reduction)
    found: Slopes = None
    if slopes != "none":
        of_rows = ConjugateSensitivity(p, *shaped(orders, p)).conjugate_slopes() * counted.unsqueeze(-1)
        found = of_kind(of_rows, slopes, divisor)
    if keeps == "gradient":
        return loss, None, _weighted_error(p, indices, counted, 1 / divisor), found, divisor
    states = logits.new_full((*counted.shape, 4), math.nan, dtype=solving_dtype(logits.device))
    return loss, states, None, found, divisor  # from NaN, the gradient of a kernel is NaN


def reduced(rows: Tensor, counted: Tensor, reduction: str) -> tuple[Tensor, Tensor]:
    """The reduced loss from the loss [...] of each row, 0 where it is not counted, and the divisor of its gradient."""
    rows = torch.where(counted, rows - rows.clamp_max(0), 0)  # rounding can leave −1e-17 at p = y
    if reduction != "mean":
        return rows if reduction == "none" else rows.sum(), rows.new_ones(())
    count = counted.sum().to(rows.dtype)
    return rows.sum() / count, count.clamp_min(1)


def class_loss_backward(
    logits: Tensor,
    targets: Tensor,
    states: Tensor,
    grad: Tensor,
    orders: Orders,
    ignore_index: int,
    divisor: float | Tensor,
) -> Tensor:
    finite, indices, counted = counted_rows(widened(logits), targets, ignore_index)
    p, _, _ = solve(finite, orders, False)
    return _weighted_error(p, indices, counted, grad / divisor).to(logits.dtype)


def _weighted_error(p: Tensor, indices: Tensor, counted: Tensor, weights: Tensor) -> Tensor:
    """weights (p − y), for one weight for each row, or one for all; 0 in rows that are not counted."""
    error = p.scatter_add(-1, indices.unsqueeze(-1), -torch.ones_like(p[..., :1]))
    return torch.where(counted, weights, 0).unsqueeze(-1) * error


def shaped(orders: Orders, values: Tensor) -> list[float | Tensor]:
    """Each order for values [..., classes]: a number, whose differences keep all digits in Python, or [..., 1]."""
    rows = *values.shape[:-1], 1
    return [order.to(values.device).reshape(rows) if isinstance(order, Tensor) else order for order in orders]
