"""The largest of several maxima, outside the concave region, by branch and bound.

There r < q, so that g = Λ − (q−r) R_q is a difference of two functions that rise with y, Λ = y + (q−1) log W, and the
objective a sum of one that falls and one that rises: a larger y is a flatter p. The values at the ends of a cell [a, b]
therefore bound both over the cell:

    Λ(a) − (q−r) R_q(b) ≤ g ≤ Λ(b) − (q−r) R_q(a)        objective ≤ p(a)·x + H(p(b))/q

A cell that can hold no root, or none as good as a p already seen, is dropped; the others are cut into smaller ones.
Maxima in different cells at the end are compared by their objectives.
"""

import math

import torch
from torch import Tensor

from sharmix._mathematics.equation import Equation

_PARTS = 8  # the parts that a cell is cut into; with more parts there are fewer rounds, of more evaluations each
# The most cells of one row. Next to a triple root, or where r is within 1e-6 of 2 − 1/q and q > 2, there would be far
# more. The objectives of maxima that then share a cell are within 1e-10 of each other.
_MOST_CELLS = 4096
_ROUNDING = {torch.float64: 1e-13, torch.float32: 5e-6}  # the rounding of a bound, relative to 1 + its size
_CHUNK_ELEMENTS = 1 << 16  # of one evaluation, so that its temporaries fit into the processor's cache
_CHUNK_ELEMENTS_OF_CUDA = 1 << 24  # where launches cost time; an evaluation holds nine such arrays, 1.2 GB

_Y, _RISING, _FEEDBACK, _LINEAR, _ENTROPY = range(5)  # y, Λ, (q−r) R_q, p·x and H/q at an end of a cell


def global_maximum(equation: Equation) -> Tensor:
    """The y with the largest objective, [rows, 1]; any number for a row whose logits hold a NaN."""
    row = torch.arange(len(equation.x), device=equation.x.device)
    bracket = equation.bracket()
    low, high = (_ends(equation, row, y) for y in bracket)
    best = low.new_full(row.shape, -math.inf)
    width = _last_width(equation)
    while (wide := _wide(row, low, high, width)).any():
        inner = _inner_points(low[wide, _Y], high[wide, _Y])
        cut = row[wide].repeat_interleave(_PARTS - 1)
        points = _ends(equation, cut, inner.reshape(-1, 1))
        best = best.scatter_reduce(0, cut, points[:, _LINEAR] + points[:, _ENTROPY], "amax")

        points = points.reshape(-1, _PARTS - 1, points.shape[-1])
        starts, stops = torch.cat([low[wide, None], points], 1), torch.cat([points, high[wide, None]], 1)
        row = torch.cat([row[~wide], row[wide].repeat_interleave(_PARTS)])
        low, high = torch.cat([low[~wide], starts.flatten(0, 1)]), torch.cat([high[~wide], stops.flatten(0, 1)])
        kept = _may_hold_maximum(low, high, best[row])
        row, low, high = row[kept], low[kept], high[kept]
    return _best_root(equation, row, low, high)


def _ends(equation: Equation, row: Tensor, y: Tensor) -> Tensor:
    """The bounding values, [points, 5], at each y [points, 1] of the row with the index `row` [points]."""
    elements = _CHUNK_ELEMENTS_OF_CUDA if equation.x.is_cuda else _CHUNK_ELEMENTS
    chunk = max(1, elements // equation.x.shape[-1])
    slices = [slice(start, start + chunk) for start in range(0, len(row), chunk)]
    return torch.cat([_bounding_values(equation.select(row[some]), y[some]) for some in slices])


def _bounding_values(equation: Equation, y: Tensor) -> Tensor:
    solution = equation.at(y)
    feedback = -equation.gap * solution.renyi
    return torch.cat([y, solution.rising, feedback, solution.linear(), solution.scaled_entropy()], -1)


def _last_width(equation: Equation) -> Tensor:
    """The width h of the smallest cells of each row, [rows].

    Between two roots in such a cell, the objective changes by no more than rounding: by |Δ(p·x)| · max |g|, which is at
    most h · h, or beside a knot, where δ > 1, h^{1/δ} · h.
    """
    delta = equation.delta.squeeze(-1).clamp_min(1)
    return (10 * _ROUNDING[delta.dtype]) ** (delta / (1 + delta))


def _wide(row: Tensor, low: Tensor, high: Tensor, width: Tensor) -> Tensor:
    """Whether each cell must still be cut."""
    crowded = row.bincount(minlength=len(width)) > _MOST_CELLS
    return (high[:, _Y] - low[:, _Y] > width[row]) & ~crowded[row]


def _inner_points(low: Tensor, high: Tensor) -> Tensor:
    """The y, [cells, parts − 1], that cut each cell, from `low` to `high` [cells], into equal parts."""
    share = torch.arange(1, _PARTS, dtype=low.dtype, device=low.device) / _PARTS
    return low[:, None] + (high - low)[:, None] * share


def _may_hold_maximum(low: Tensor, high: Tensor, best: Tensor) -> Tensor:
    least, most = low[:, _RISING] - high[:, _FEEDBACK], high[:, _RISING] - low[:, _FEEDBACK]
    relative = _ROUNDING[low.dtype]
    rounding = relative * (1 + high[:, _FEEDBACK])
    bound = low[:, _LINEAR] + high[:, _ENTROPY] + relative * (1 + high[:, _ENTROPY])
    return (least <= rounding) & (most >= -rounding) & (bound >= best)


def _best_root(equation: Equation, row: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The root with the largest objective, over the cells in which g changes sign from negative to positive."""
    crossing = (low[:, _RISING] < low[:, _FEEDBACK]) & (high[:, _RISING] >= high[:, _FEEDBACK])
    row, low, high = row[crossing], low[crossing, _Y, None], high[crossing, _Y, None]
    candidates = equation.select(row)
    y = candidates.root(low, high)
    objective = candidates.at(y).objective().squeeze(-1)
    best = objective.new_full((len(equation.x),), -math.inf).scatter_reduce(0, row, objective, "amax")
    winning = objective == best[row]
    least = torch.zeros_like(best).scatter_reduce(0, row[winning], y[winning, 0], "amin", include_self=False)
    return least[:, None]
