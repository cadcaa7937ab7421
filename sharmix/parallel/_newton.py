"""Newton's method on rows whose classes are split over processes (docs/math.md, section 2).

It starts from the solution for the candidates alone. A step needs one all-reduce, of four sums over the classes.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from sharmix._arguments import widened
from sharmix._mathematics.entropy import sharma_mittal_of_renyi
from sharmix._mathematics.equation import newton
from sharmix._mathematics.sensitivity import ConjugateSensitivity
from sharmix._mathematics.series import expm1_ratio_slope

_TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-4}  # for the last step; the error after it is about its square
_MARGIN = 1e-3  # added to both ends of a bracket, which rounding can move


def shifted(logits: Tensor, largest: Tensor, q: float, temperature: float) -> Tensor:
    """The logits minus the largest of their row, in units of T₀; float64 for q > 2, where p is steep in the logits."""
    x = logits.double() if q > 2 else widened(logits)
    return (x - largest.unsqueeze(-1).to(x.dtype)) / temperature


def shrinkage_and_log_powers(x: Tensor, y: Tensor, delta: float) -> tuple[Tensor, Tensor]:
    """wᵢ − 1, and log wᵢ^{1/(q−1)}, at the scales s = eʸ, y [rows]; see `Equation.at`."""
    inverse = (delta * (-y).exp()).clamp_max(torch.finfo(x.dtype).max)  # times x = 0, infinity would be NaN
    shrinkage = (x * inverse.unsqueeze(-1).to(x.dtype)).clamp_min(-1)
    return shrinkage, shrinkage.log1p() / delta


class _Moments(NamedTuple):
    """For the distribution of each row at y: log W and its slope, E_p[δx/s], and R_q and its slope, [rows]."""

    y: Tensor
    log_total: Tensor
    total_slope: Tensor
    mean: Tensor
    renyi: Tensor
    renyi_slope: Tensor


class SplitRows:
    """Logits x [rows, classes of this process], minus the largest logit of all processes, in units of T₀."""

    def __init__(self, x: Tensor, orders: tuple[float, float, float], group: dist.ProcessGroup) -> None:
        self.x, self.group = x, group
        self.q, self.r, self.temperature = orders
        self.delta = self.q - 1

    def solve(self, p: Tensor, renyi: Tensor, least: Tensor, classes: int) -> None:
        """Find y = log s, log W and R_q of each row, [rows].

        `p` is the solution for the candidates, [rows, candidates], and `renyi` its R_q, [rows]. `least` is the largest
        probability among the K-th candidates of the processes, [rows].

        With V = Σ w^{b+1} and κ = (q−r)/(q−1), g is y + (r−1−κ) log W + κ log V, and r−1−κ ≥ 0. A further class of
        weight w therefore raises g if κ ≥ 0 or w ≤ V/W, and then y is at most that of the candidates. Only classes
        with x > −s/(q−1) can be in the support.
        """
        start = (self.q - self.r) * renyi + self.delta * p.amax(-1).log()
        mean_weight = ((p.amax(-1).log() + renyi) * -self.delta).exp()
        last_weight = (least / p.amax(-1)) ** self.delta
        is_bound = (last_weight <= mean_weight) | (self.r <= self.q)
        high = torch.where(is_bound, start, 0) + _MARGIN
        low = torch.full_like(start, -max(self.r - 1, 0) * math.log(classes) - _MARGIN)  # as `Equation.bracket`
        self._leave_out(high)
        self.y = newton(self._terms, start, low, high, _TOLERANCE[self.x.dtype])
        # The sums belong to the point before the last, short step; log W and R_q follow along their slopes.
        last, step = self.last, self.y - self.last.y
        self.log_total = last.log_total + step * last.total_slope
        self.renyi = last.renyi + step * last.renyi_slope

    def _leave_out(self, high: Tensor) -> None:
        """Drop the classes that are outside the support for every y ≤ high, if most are; −∞ fills up the rows."""
        inside = self.x > -high.exp().unsqueeze(-1) / self.delta
        counts = inside.sum(-1, keepdim=True)
        most = int(counts.amax())
        if 2 * most <= self.x.shape[-1]:
            few = self.x.new_full((len(self.x), most), -torch.inf)
            places = torch.arange(most, device=few.device) < counts
            self.x = few.masked_scatter_(places, self.x.masked_select(inside))

    def _terms(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """g and its slope at y [rows], as in `Solution`."""
        delta = self.delta
        total, weighted, spread, curved = self._sums(y)
        log_total, mean = total.log(), weighted / total
        renyi = log_total - mean.log1p() / delta
        total_slope = -spread / total  # times δ, as in `Solution.slope`
        mean_slope = -curved / total - mean * (total_slope + delta)
        renyi_slope = (total_slope - mean_slope / (delta * (mean + 1))) / delta
        self.last = _Moments(y, log_total, total_slope / delta, mean, renyi, renyi_slope)
        gap = self.r - self.q
        return y + delta * log_total + gap * renyi, 1 + total_slope + gap * renyi_slope

    def _sums(self, y: Tensor) -> Tensor:
        """Σ w^b, Σ w^b u, Σ w^{b−1} u and Σ w^{b−1} u² over all classes, b = 1/(q−1) and u = w − 1, [4, rows]."""
        u, power = shrinkage_and_log_powers(self.x, y, self.delta)
        power = power.exp_()
        spread = (u + 1).clamp_min_(torch.finfo(u.dtype).tiny).reciprocal_().mul_(power).mul_(u)
        return self._total([power, power * u, spread, spread * u])

    def _total(self, terms: Sequence[Tensor]) -> Tensor:
        sums = torch.stack([term.sum(-1) for term in terms]).double()
        dist.all_reduce(sums, group=self.group)
        return sums

    def conjugate(self) -> Tensor:
        """Ω* of each row, at the point before the last step: Ω* is stationary at the root."""
        renyi, at = self.last.renyi, self.last
        entropy = sharma_mittal_of_renyi(renyi, torch.full_like(renyi, self.r))
        return (at.mean / self.delta * at.y.exp() + entropy / self.q) * self.temperature

    def conjugate_slopes(self, by_q: bool) -> Tensor:
        """∂Ω*/∂θ of each row for θ = q, r and T₀, [rows, 3]; the first needs one more all-reduce."""
        log_p = shrinkage_and_log_powers(self.x, self.y, self.delta)[1] - self.log_total.unsqueeze(-1).to(self.x.dtype)
        slope = torch.zeros_like(self.renyi)
        if by_q:
            ratio = torch.where(log_p > -torch.inf, log_p + self.renyi.unsqueeze(-1).to(log_p.dtype), 0)
            terms = log_p.exp() * ratio.square() * expm1_ratio_slope(self.delta * ratio)
            slope = -self._total([terms])[0]
        return _Sensitivity(self.renyi, slope, self.q, self.r, self.temperature).conjugate_slopes()


class _Sensitivity(ConjugateSensitivity):
    """The derivatives of the conjugate from R_q and ∂R_q/∂q of each row, [rows]."""

    def __init__(self, renyi: Tensor, slope: Tensor, *orders: float) -> None:
        self.p = self.renyi = renyi.unsqueeze(-1)  # of p only the shape is used
        self.q, self.r, self.temperature = (renyi.new_tensor(order) for order in orders)
        self._slope = slope.unsqueeze(-1)

    def renyi_slope(self) -> Tensor:
        return self._slope
