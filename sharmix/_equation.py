"""The one scalar equation behind the Sharma–Mittal map (`math` section 2), for every row at once.

For logits x ≤ 0 whose largest is 0, each scale s = eʸ gives a distribution,

    wᵢ = (1 + (q−1) xᵢ/s)₊        pᵢ = wᵢ^{1/(q−1)} / W        W = Σ wᵢ^{1/(q−1)}

and p is stationary for the map's objective where

    g(y) = y + (q−1) log W − log T₀ + (r−q) R_q(p) = 0.

Everything here is float64 and free of autograd: the map's derivatives are closed forms of its output.
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
_LEAST_DELTA = 1e-30  # stands for q = 1: log1p(δv)/δ is then v to the last digit, without a 0/0
_LEAST_WEIGHT = 1e-300  # divides in place of a weight of 0, whose probability is 0 too


@dataclass
class Equation:
    """Rows of x [rows, classes] with their parameters, each [rows, 1]."""

    x: Tensor
    q: Tensor
    r: Tensor
    temperature: Tensor

    def __post_init__(self) -> None:
        self.delta = (self.q - 1).clamp_min(_LEAST_DELTA)
        self.gap = self.r - self.q
        self.log_temperature = self.temperature.log()

    def select(self, rows: Tensor | slice) -> "Equation":
        return Equation(self.x[rows], self.q[rows], self.r[rows], self.temperature[rows])

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
class Solution:
    """What one y [rows, 1] gives: its distribution, that one's Rényi entropy, and g with its slope by the unknown."""

    y: Tensor
    probabilities: Tensor
    mean: Tensor  # E_p[x/s]
    renyi: Tensor
    residual: Tensor
    slope: Tensor

    def linear(self) -> Tensor:
        """p·x, the part of the objective that rewards large logits."""
        return self.mean * self.y.exp()

    def scaled_entropy(self, equation: Equation) -> Tensor:
        """(T₀/q) H_{q,r}(p), the part that rewards a flat p."""
        return equation.temperature / equation.q * self.renyi * expm1_ratio((1 - equation.r) * self.renyi)

    def objective(self, equation: Equation) -> Tensor:
        """p·x + (T₀/q) H_{q,r}(p), the quantity the map maximises; ≥ 0, its value at the largest logit."""
        return (self.linear() + self.scaled_entropy(equation)).clamp_min(0)


def evaluate(equation: Equation, y: Tensor) -> Solution:
    # δxᵢ/s, held at −1 off the support: p is 0 there, and everything stays finite, even for a logit of −∞.
    shrinkage = (equation.x * (equation.delta * (-y).exp())).clamp_min(-1)
    return solution_of(equation, y, shrinkage, shrinkage.log1p(), shrinkage + 1)


def solution_of(equation: Equation, y: Tensor, shrinkage: Tensor, log_weight: Tensor, weight: Tensor) -> Solution:
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
    return Solution(y, p, mean / delta, renyi, residual, slope)


def newton(evaluate: Callable[[Tensor], Solution], guess: Tensor, low: Tensor, high: Tensor) -> Tensor:
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
