"""The one scalar equation behind the Sharma–Mittal map (`math` section 2), solved for every row at once.

For logits x ≤ 0 whose largest is 0, each scale s = eʸ gives a distribution,

    wᵢ = (1 + (q−1) xᵢ/s)₊        pᵢ = wᵢ^{1/(q−1)} / W        W = Σ wᵢ^{1/(q−1)}

and p is stationary for the map's objective where

    g(y) = y + (q−1) log W − log T₀ + (r−q) R_q(p) = 0.

Everything here is float64 and free of autograd: the map's derivatives are closed forms of its output.

For δ = q − 1 > 1 a class joins the support with infinite slope in y, at the knot log(−δ xₖ), so that a rounded y would
leave it a wrong p. The root is then measured from the last knot below it, y = log(−δ xₖ) + m^δ: p is smooth in m.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from sharmix._series import expm1_ratio

_TOLERANCE = 1e-12  # of the last step and residual: g has kinks, at which Newton need not double the digits
_MAXIMUM_STEPS = 100  # bisection alone needs about 60
_BRACKET_MARGIN = 1e-3  # the bracket is exact up to rounding, and a root may lie on its end
_GRID_STEP = 0.05  # in y = log s, between scales tried where the objective may have several maxima
_LEAST_GRID = 64  # scales tried at the least
_LEAST_DELTA = 1e-30  # stands for q = 1: log1p(δv)/δ is then v to the last digit, without a 0/0
_LEAST_WEIGHT = 1e-300  # divides in place of a weight of 0, whose probability is 0 too
_NEIGHBOURHOOD = 1e-9  # of a root, far wider than its error: the knots in it are tried for their side of the root
_LEAST_GUESS = 1e-20  # of m: at 0 itself the slope is 0 · ∞
_LEAST_LOGIT = 1e-300  # stands for a logit of 0, which has no knot: all other logits then lie beyond it
_CONCAVITY_TOLERANCE = 1e-12  # a rounded r = 2 − 1/q counts as concave
_CHUNK_ELEMENTS = 1 << 21  # of a grid's temporaries: 16 MiB of float64, which an allocator still keeps for reuse


@dataclass
class _Equation:
    """Rows of x [rows, classes] with their parameters, each [rows, 1]."""

    x: Tensor
    q: Tensor
    r: Tensor
    temperature: Tensor

    def __post_init__(self) -> None:
        self.delta = (self.q - 1).clamp_min(_LEAST_DELTA)
        self.gap = self.r - self.q
        self.log_temperature = self.temperature.log()

    def select(self, rows: Tensor | slice) -> "_Equation":
        return _Equation(self.x[rows], self.q[rows], self.r[rows], self.temperature[rows])

    def bracket(self) -> tuple[Tensor, Tensor]:
        """Values of y with g < 0 and g > 0, from 0 ≤ log W ≤ log N and 0 ≤ R_q ≤ log N."""
        most = math.log(self.x.shape[-1])
        low = self.log_temperature - self.delta * most - (self.gap * most).clamp_min(0) - _BRACKET_MARGIN
        high = self.log_temperature - (self.gap * most).clamp_max(0) + _BRACKET_MARGIN
        return low, high

    def guess(self) -> Tensor:
        """The root near softmax and for nearly equal logits, where log W = R_q = log Σ exp(x/T₀)."""
        return self.log_temperature - (self.r - 1) * (self.x / self.temperature).logsumexp(-1, keepdim=True)


@dataclass
class _Solution:
    """What one y [rows, 1] gives: its distribution, that one's Rényi entropy, and g with its slope by the unknown."""

    y: Tensor
    probabilities: Tensor
    mean: Tensor  # E_p[x/s]
    renyi: Tensor
    residual: Tensor
    slope: Tensor

    def objective(self, equation: _Equation) -> Tensor:
        """p·x + (T₀/q) H_{q,r}(p), the quantity the map maximises; ≥ 0, its value at the largest logit."""
        entropy = self.renyi * expm1_ratio((1 - equation.r) * self.renyi)
        return (self.mean * self.y.exp() + equation.temperature / equation.q * entropy).clamp_min(0)


def _evaluate(equation: _Equation, y: Tensor) -> _Solution:
    # δxᵢ/s, held at −1 off the support: p is 0 there, and everything stays finite, even for a logit of −∞.
    shrinkage = (equation.x * (equation.delta * (-y).exp())).clamp_min(-1)
    return _solution(equation, y, shrinkage, shrinkage.log1p(), shrinkage + 1)


def _solution(equation: _Equation, y: Tensor, shrinkage: Tensor, log_weight: Tensor, weight: Tensor) -> _Solution:
    """The solution of weights wᵢ = 1 + shrinkage, given in the three forms that keep its digits."""
    delta, gap = equation.delta, equation.gap
    powers = (log_weight / delta).exp()
    total = powers.sum(-1, keepdim=True)
    p = powers / total
    weighted = p * shrinkage
    mean = weighted.sum(-1, keepdim=True)
    log_total = total.log()
    renyi = log_total - mean.log1p() / delta
    residual = y + delta * log_total - equation.log_temperature + gap * renyi

    # δ ∂(log W)/∂y and δ ∂(mean)/∂y, from ∂(log wᵢ^{1/δ})/∂y = −(xᵢ/s)/(1 + δxᵢ/s)
    spread = weighted / weight.clamp_min(_LEAST_WEIGHT)
    total_slope = -spread.sum(-1, keepdim=True)
    mean_slope = -(spread * shrinkage).sum(-1, keepdim=True) - mean * (total_slope + delta)
    renyi_slope = (total_slope - mean_slope / (delta * (mean + 1))) / delta
    slope = gap * renyi_slope + total_slope + 1
    return _Solution(y, p, mean / delta, renyi, residual, slope)


def _newton(evaluate: Callable[[Tensor], _Solution], guess: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The root of g between `low` (g < 0) and `high` (g > 0), by Newton's method kept inside the bracket.

    A step that leaves the bracket, or is longer than half the one before, is replaced by bisection: each step then
    halves the bracket or the step. Steps within the tolerance are rounding, and taken as they come.
    """
    root = torch.maximum(low, torch.minimum(high, guess))
    previous = high - low
    for _ in range(_MAXIMUM_STEPS):
        solution = evaluate(root)
        low = torch.where(solution.residual < 0, root, low)
        high = torch.where(solution.residual > 0, root, high)
        newton = root - solution.residual / solution.slope
        shortened = (newton - root).abs() <= (previous / 2).clamp_min(_TOLERANCE)
        trusted = (newton >= low) & (newton <= high) & shortened
        following = torch.where(trusted, newton, (low + high) / 2)
        previous = (following - root).abs()
        root = following
        # A steep g, near a knot, needs the residual too; written so that a NaN row counts as settled.
        if not (torch.maximum(previous, solution.residual.abs()) > _TOLERANCE).any():
            break
    return root


def _only_maximum(equation: _Equation) -> Tensor:
    """The y of the maximum, where there is one alone."""
    return _newton(lambda y: _evaluate(equation, y), equation.guess(), *equation.bracket())


@dataclass
class _Knot:
    """The equation in the unknown m ≥ 0, y = log(−δ xₖ) + m^δ, for a logit xₖ of each row, [rows, 1].

    The support is xₖ and what is larger. xₖ = 0 stands for no knot: the largest logits are the support, at any y.
    """

    equation: _Equation
    logit: Tensor

    def __post_init__(self) -> None:
        self.exists = (self.logit < 0).squeeze(-1)
        self.logit = self.logit.clamp_max(-_LEAST_LOGIT)
        self.start = (-self.equation.delta * self.logit).log()

    def select(self, rows: Tensor) -> "_Knot":
        return _Knot(self.equation.select(rows), self.logit[rows])

    def evaluate(self, m: Tensor) -> _Solution:
        """The solution at m, and the slope of g by m."""
        delta, logit = self.equation.delta, self.logit
        offset = m**delta
        x = torch.maximum(self.equation.x, logit)
        # wᵢ = 1 − (xᵢ/xₖ) e^{−offset}, without rounding 1 against what is nearly 1
        weight = (logit - x) / logit - x / logit * torch.expm1(-offset)
        weight = torch.where(self.equation.x < logit, 0, weight)
        solution = _solution(self.equation, self.start + offset, weight - 1, weight.log(), weight)
        solution.slope = solution.slope * delta * m ** (delta - 1)
        return solution


def _last_knot(equation: _Equation, y: Tensor) -> _Knot:
    """The last knot below the root near y: of those in y's neighbourhood, by bisection, the last where g < 0.

    Only they can be on either side of the root, and between them g crosses 0 once, upwards.
    """
    x = equation.x.sort(-1, descending=True).values
    starts = (-equation.delta * x).log()
    low, high = (
        ((starts <= y + reach).sum(-1, keepdim=True) - 1).clamp_min(0) for reach in (-_NEIGHBOURHOOD, _NEIGHBOURHOOD)
    )
    while (low < high).any():
        middle = (low + high + 1) // 2
        below = _Knot(equation, x.gather(-1, middle)).evaluate(torch.zeros_like(y)).residual < 0
        low, high = torch.where(below, middle, low), torch.where(below, high, torch.maximum(middle - 1, low))
    return _Knot(equation, x.gather(-1, low))


def _from_last_knot(equation: _Equation, y: Tensor) -> _Solution:
    """The solution at the root near y, solved once more in m."""
    knot = _last_knot(equation, y)
    some = knot.select(knot.exists)
    order, offset = 1 / some.equation.delta, y[knot.exists] - some.start
    least, guess, most = (
        (offset + reach).clamp_min(0) ** order for reach in (-2 * _NEIGHBOURHOOD, 0.0, 2 * _NEIGHBOURHOOD)
    )
    m = torch.zeros_like(y)
    m[knot.exists] = _newton(some.evaluate, guess.clamp_min(_LEAST_GUESS), least, most)
    return knot.evaluate(m)


def _global_maximum(equation: _Equation) -> Tensor:
    """The y of the largest objective: every upward crossing of g on a grid of the bracket, refined and compared."""
    grid = _grid(*equation.bracket())
    rows_per_chunk = max(1, _CHUNK_ELEMENTS // (grid.shape[-1] * equation.x.shape[-1]))
    residuals = [
        _residuals_on_grid(equation.select(slice(start, start + rows_per_chunk)), grid[start : start + rows_per_chunk])
        for start in range(0, len(grid), rows_per_chunk)
    ]
    residual = torch.cat(residuals) if residuals else grid
    rows, cells = torch.nonzero((residual[:, :-1] < 0) & (residual[:, 1:] >= 0), as_tuple=True)

    candidates = equation.select(rows)
    low, high = grid[rows, cells, None], grid[rows, cells + 1, None]
    y = _newton(lambda y: _evaluate(candidates, y), candidates.guess(), low, high)
    objective = _evaluate(candidates, y).objective(candidates).squeeze(-1)

    best = objective.new_full((len(grid),), -math.inf).scatter_reduce(0, rows, objective, "amax")
    first = torch.arange(len(rows), device=rows.device).masked_fill(objective < best[rows], len(rows))
    winner = first.new_full((len(grid),), len(rows)).scatter_reduce(0, rows, first, "amin")
    # A row without a crossing has a NaN among its logits; any y gives its NaN.
    return torch.cat([y, y.new_zeros(1, 1)])[winner]


def _grid(low: Tensor, high: Tensor) -> Tensor:
    """Evenly spaced points from `low` to `high`, both [rows, 1], as many for each row: [rows, points]."""
    widest = (high - low).max().item() if len(low) else 0.0
    points = max(_LEAST_GRID, math.ceil(widest / _GRID_STEP) + 1)
    return low + (high - low) * torch.linspace(0, 1, points, dtype=low.dtype, device=low.device)


def _residuals_on_grid(equation: _Equation, grid: Tensor) -> Tensor:
    """g at every grid point, [rows, points]."""
    rows, points = grid.shape
    repeated = equation.select(torch.arange(rows, device=grid.device).repeat_interleave(points))
    return _evaluate(repeated, grid.reshape(-1, 1)).residual.reshape(rows, points)


def _is_concave(q: Tensor, r: Tensor) -> Tensor:
    """Whether the objective has one maximum for every row of logits: r ≥ 2 − 1/q (`math` section 3)."""
    return r >= 2 - 1 / q - _CONCAVITY_TOLERANCE


@torch.library.custom_op("sharmix::solve", mutates_args=())
def solve(x: Tensor, q: Tensor, r: Tensor, temperature: Tensor, nonconcave: str) -> tuple[Tensor, Tensor]:
    """The Sharma–Mittal map and its convex conjugate, for logits whose largest is 0.

    Args:
        x: logits minus their maximum, [..., classes].
        q, r, temperature: [..., 1], in their allowed ranges.
        nonconcave: `global` or `error`, for rows with r < 2 − 1/q.

    Returns:
        p* [..., classes] and Ω*(x) = p*·x + (T₀/q) H_{q,r}(p*) [...], in the dtype of x.

    Raises:
        ValueError: a row lies outside the concave region and `nonconcave` is `error`.
    """
    q_rows, r_rows, temperature_rows = (parameter.double().reshape(-1, 1) for parameter in (q, r, temperature))
    equation = _Equation(x.double().reshape(-1, x.shape[-1]), q_rows, r_rows, temperature_rows)
    concave = _is_concave(equation.q, equation.r).squeeze(-1)
    y = torch.zeros_like(equation.q)
    if concave.all():
        y = _only_maximum(equation)
    elif nonconcave == "error":
        q_value, r_value = equation.q[~concave][0].item(), equation.r[~concave][0].item()
        raise ValueError(
            f"(q, r) = ({q_value:g}, {r_value:g}) lies outside the concave region r >= 2 - 1/q = {2 - 1 / q_value:g}, "
            "where the map may jump; raise r, or ask for nonconcave='global'"
        )
    else:
        y[concave] = _only_maximum(equation.select(concave))
        y[~concave] = _global_maximum(equation.select(~concave))
    solution = _evaluate(equation, y)
    p, conjugate = solution.probabilities, solution.objective(equation)
    steep = (equation.delta > 1).squeeze(-1)
    if steep.any():
        some = equation.select(steep)
        solution = _from_last_knot(some, y[steep])
        p[steep], conjugate[steep] = solution.probabilities, solution.objective(some)
    return p.to(x.dtype).reshape(x.shape), conjugate.to(x.dtype).reshape(x.shape[:-1])


@solve.register_fake
def _(x: Tensor, q: Tensor, r: Tensor, temperature: Tensor, nonconcave: str) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape[:-1])


@solve.register_vmap
def _(info, in_dims, x, q, r, temperature, nonconcave):  # type: ignore[no-untyped-def]
    tensors = [
        tensor.expand(info.batch_size, *tensor.shape) if batched is None else tensor.movedim(batched, 0)
        for tensor, batched in zip((x, q, r, temperature), in_dims, strict=False)
    ]
    return solve(*tensors, nonconcave), (0, 0)
