"""The one scalar equation behind the Sharma–Mittal map (docs/math.md, section 2), for every row at once.

For logits x ≤ 0 in units of T₀, the largest of which is 0, each scale s = eʸ gives a distribution,

    wᵢ = (1 + (q−1) xᵢ/s)₊        pᵢ = wᵢ^{1/(q−1)} / W        W = Σ wᵢ^{1/(q−1)}

and p is stationary for the map's objective, p·x + H_{q,r}(p)/q, where

    g(y) = y + (q−1) log W + (r−q) R_q(p) = 0.

Everything here is float64, or float32 on a device without float64, and free of autograd: the map's derivatives are
closed forms of its output.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from sharmix._mathematics.series import expm1_ratio

_MAXIMUM_STEPS = 100  # bisection alone needs about 60
_BRACKET_MARGIN = 1e-3  # the bracket is exact up to rounding, and a root may lie on its end
# δ for q = 1: log1p(δv)/δ is then v to the last digit, without a 0/0, and δ² is not too small for the dtype.
_LEAST_DELTA = {torch.float64: 1e-30, torch.float32: 1e-15}
_LEAST_WEIGHT = {torch.float64: 1e-300, torch.float32: 1e-37}  # divides in place of a weight of 0, where p is 0, too


@dataclass
class Equation:
    """Rows of x [rows, classes] with their orders, each [rows, 1]."""

    x: Tensor
    q: Tensor
    r: Tensor

    def __post_init__(self) -> None:
        self.delta = (self.q - 1).clamp_min(_LEAST_DELTA[self.x.dtype])
        self.gap = self.r - self.q

    def select(self, rows: Tensor | slice) -> "Equation":
        return Equation(self.x[rows], self.q[rows], self.r[rows])

    def bracket(self) -> tuple[Tensor, Tensor]:
        """Values of y with g < 0 and g > 0, from 0 ≤ log W ≤ R_q ≤ log N and R_q ≤ q/(q−1) log W."""
        most = math.log(self.x.shape[-1])
        low = -(self.r - 1).clamp_min(0) * most - _BRACKET_MARGIN
        high = (2 - 1 / self.q - self.r).clamp_min(0) * most + _BRACKET_MARGIN
        return low, high

    def guess(self) -> Tensor:
        """The root near softmax and for nearly equal logits, where log W = R_q = log Σ exp(x)."""
        return (1 - self.r) * self.x.logsumexp(-1, keepdim=True)

    def at(self, y: Tensor) -> "Solution":
        """The distributions at the scales s = eʸ, y [rows, 1]."""
        # δxᵢ/s, held at −1 off the support: p is 0 there, and everything stays finite, even for a logit of −∞.
        inverse = (self.delta * (-y).exp()).clamp_max(torch.finfo(y.dtype).max)  # times x = 0, infinity would be NaN
        shrinkage = (self.x * inverse).clamp_min(-1)
        return Solution(self, y, shrinkage, shrinkage.log1p(), shrinkage + 1)

    def root(self, low: Tensor, high: Tensor) -> Tensor:
        """The root between `low` (g < 0) and `high` (g > 0)."""

        def terms(y: Tensor) -> tuple[Tensor, Tensor]:
            solution = self.at(y)
            return solution.residual, solution.slope()

        return newton(terms, self.guess(), low, high, tolerance(torch.maximum(low.abs(), high.abs())))


class Solution:
    """The distribution of each row at one y [rows, 1], from weights wᵢ = 1 + shrinkage.

    Args:
        equation: the rows.
        y: the value for each row, [rows, 1].
        shrinkage, log_weight, weight: wᵢ − 1, log wᵢ and wᵢ, [rows, classes], each computed without loss of digits.
    """

    def __init__(self, equation: Equation, y: Tensor, shrinkage: Tensor, log_weight: Tensor, weight: Tensor) -> None:
        self.equation, self.y, self.shrinkage, self.weight = equation, y, shrinkage, weight
        delta = equation.delta
        powers = (log_weight / delta).exp()
        total = powers.sum(-1, keepdim=True)
        log_total = total.log()
        self.probabilities = powers / total
        self.weighted = self.probabilities * shrinkage
        self.mean = self.weighted.sum(-1, keepdim=True)  # δ E_p[x/s]
        self.renyi = log_total - self.mean.log1p() / delta
        self.rising = y + delta * log_total  # g without its last term, (r−q) R_q
        self.residual = self.rising + equation.gap * self.renyi

    def slope(self) -> Tensor:
        """∂g/∂y, [rows, 1]."""
        delta = self.equation.delta
        # δ ∂(log W)/∂y and δ ∂(mean)/∂y, from ∂(log wᵢ^{1/δ})/∂y = −(xᵢ/s)/(1 + δxᵢ/s)
        spread = self.weighted / self.weight.clamp_min(_LEAST_WEIGHT[self.weight.dtype])
        total_slope = -spread.sum(-1, keepdim=True)
        mean_slope = -(spread * self.shrinkage).sum(-1, keepdim=True) - self.mean * (total_slope + delta)
        renyi_slope = (total_slope - mean_slope / (delta * (self.mean + 1))) / delta
        return self.equation.gap * renyi_slope + total_slope + 1

    def linear(self) -> Tensor:
        """p·x, the part of the objective that rewards large logits, [rows, 1]."""
        return self.mean / self.equation.delta * self.y.exp()

    def scaled_entropy(self) -> Tensor:
        """H_{q,r}(p)/q, the part that rewards a flat p, [rows, 1]."""
        return self.renyi * expm1_ratio((1 - self.equation.r) * self.renyi) / self.equation.q

    def objective(self) -> Tensor:
        """p·x + H_{q,r}(p)/q, the quantity the map maximises; ≥ 0, its value at the largest logit, [rows, 1]."""
        return (self.linear() + self.scaled_entropy()).clamp_min(0)


def tolerance(y: Tensor) -> float | Tensor:
    """The tolerance for the last step to a root near y, and for the residual: somewhat more than their rounding.

    It is not much more, since at a kink of g a Newton step need not double the digits.
    """
    return 1e-12 if y.dtype == torch.float64 else 1e-6 * y.abs().clamp_min(1)


def newton(
    terms: Callable[[Tensor], tuple[Tensor, Tensor]],
    guess: Tensor,
    low: Tensor,
    high: Tensor,
    tolerance: float | Tensor,
) -> Tensor:
    """The root of g between `low` (g < 0) and `high` (g > 0), by Newton's method kept inside the bracket.

    Bisection replaces a step that leaves the bracket, or is longer than half the step before; the first one may be as
    long as the bracket. So each step halves the bracket or the length of the step. A step within the tolerance is
    rounding, and is never replaced. `terms` computes g and its slope.
    """
    root = torch.maximum(low, torch.minimum(high, guess))
    previous = 2 * (high - low)
    for _ in range(_MAXIMUM_STEPS):
        residual, slope = terms(root)
        low = torch.where(residual < 0, root, low)
        high = torch.where(residual > 0, root, high)
        step = root - residual / slope
        shortened = (step - root).abs() <= (previous / 2).clamp_min(tolerance)
        trusted = (step >= low) & (step <= high) & shortened
        following = torch.where(trusted, step, (low + high) / 2)
        previous = (following - root).abs()
        root = following
        # Where g is steep, near a knot, the residual must be small, too. A row of NaN counts as settled.
        if not (torch.maximum(previous, residual.abs()) > tolerance).any():
            break
    return root
