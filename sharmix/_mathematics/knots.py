"""The root of the equation measured from a knot: for q > 2, and in float32 for smaller q, too.

For δ = q − 1 > 1 a class joins the support with infinite slope in y, at the knot log(−δ xₖ), so that a rounded y would
leave it a wrong p. The root is then measured from the last knot below it, y = log(−δ xₖ) + m^δ: p is smooth in m.
For δ ≤ 1 p is smooth in y, and m is y minus the knot: tied logits that have just joined then keep their digits.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sharmix._mathematics.equation import Equation, Solution, newton, tolerance

_NEIGHBOURHOOD = 10.0  # tolerances around a root, more than its error: a knot there may be on either side of the root
_LEAST_GUESS = {torch.float64: 1e-20, torch.float32: 1e-10}  # of m, since at m = 0 the slope is 0 · ∞
# Stands for a logit of 0, which has no knot: all other logits then lie beyond it.
_LEAST_LOGIT = {torch.float64: 1e-300, torch.float32: 1e-37}


@dataclass
class _Knot:
    """The equation in the unknown m ≥ 0, y = log(−δ xₖ) + m^max(δ, 1), for a logit xₖ of each row, [rows, 1].

    The support is xₖ and all larger logits. xₖ = 0 stands for no knot: at any y the support is the largest logits.
    """

    equation: Equation
    logit: Tensor

    def __post_init__(self) -> None:
        self.exists = (self.logit < 0).squeeze(-1)
        self.logit = self.logit.clamp_max(-_LEAST_LOGIT[self.logit.dtype])
        self.start = (-self.equation.delta * self.logit).log()
        self.power = self.equation.delta.clamp_min(1)

    def select(self, rows: Tensor) -> "_Knot":
        return _Knot(self.equation.select(rows), self.logit[rows])

    def at(self, m: Tensor) -> Solution:
        """The distributions at the scales that m [rows, 1] gives."""
        logit, offset = self.logit, m**self.power
        x = torch.maximum(self.equation.x, logit)
        # wᵢ = 1 − (xᵢ/xₖ) e^{−offset}, without a difference of 1 and a number near 1
        weight = (logit - x) / logit - x / logit * torch.expm1(-offset)
        weight = torch.where(self.equation.x < logit, 0, weight)
        return Solution(self.equation, self.start + offset, weight - 1, weight.log(), weight)

    def terms(self, m: Tensor) -> tuple[Tensor, Tensor]:
        """g, and its slope by m."""
        solution = self.at(m)
        return solution.residual, solution.slope() * self.power * m ** (self.power - 1)


def _last_knot(equation: Equation, y: Tensor) -> _Knot:
    """The last knot below the root near y: the last knot in the neighbourhood of y with g < 0, by bisection.

    Only knots in the neighbourhood can be on either side of the root. Among them g crosses 0 once, upwards, in the
    concave region.
    """
    x = equation.x.sort(-1, descending=True).values
    starts, reach = (-equation.delta * x).log(), _NEIGHBOURHOOD * tolerance(y)
    low, high = (((starts <= end).sum(-1, keepdim=True) - 1).clamp_min(0) for end in (y - reach, y + reach))
    while (low < high).any():
        middle = (low + high + 1) // 2
        below = _Knot(equation, x.gather(-1, middle)).at(torch.zeros_like(y)).residual < 0
        low, high = torch.where(below, middle, low), torch.where(below, high, torch.maximum(middle - 1, low))
    return _Knot(equation, x.gather(-1, low))


def from_last_knot(equation: Equation, y: Tensor) -> Solution:
    """The solution at the root near y, from the equation solved once more in m."""
    knot = _last_knot(equation, y)
    some = knot.select(knot.exists)
    order, offset, allowed = 1 / some.power, y[knot.exists] - some.start, tolerance(some.start)
    reach = 2 * _NEIGHBOURHOOD * allowed
    least, guess, most = ((offset + shift).clamp_min(0) ** order for shift in (-reach, 0.0, reach))
    m = torch.zeros_like(y)
    m[knot.exists] = newton(some.terms, guess.clamp_min(_LEAST_GUESS[y.dtype]), least, most, allowed)
    return knot.at(m)
