"""The SharMiX map, entropy and loss to fifty digits: the yardstick of every accuracy test.

The map is the argmax of ``p·z + (T0/q) H_{q,r}(p)`` over the simplex. It is found here from its
stationarity conditions in two unknowns, the multiplier of ``sum(p) = 1`` and the temperature,

    p_i = (1 + (q-1) (x_i - mu) / T)_+ ^ (1/(q-1)),   sum(p) = 1,   T = T0 exp((q-r) R_q(p)),

with ``x = z - max(z)`` and ``mu - T/(q-1)`` the usual threshold. The library solves one equation
in one unknown instead, so the two agree only where both are right. A float64 solve gives the
start, Newton's method at fifty digits the rest.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import mpmath
import numpy as np
from mpmath import mp, mpf
from scipy.optimize import brentq

DIGITS = 50
RESIDUAL = mpf(10) ** -45
NEWTON_STEPS = 40
SCAN_POINTS = 100

Real = float | mpf
Rough = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class _Problem:
    """Distinct shifted logits with their multiplicities: ties cost nothing."""

    shifted: list[mpf]
    counts: list[int]
    q: mpf
    r: mpf
    temperature: mpf

    @property
    def is_concave(self) -> bool:
        return self.q * self.r >= 2 * self.q - 1


def sharmix(logits: Sequence[Real], q: Real, r: Real, temperature: Real = 1) -> list[mpf]:
    """The global maximiser of ``p·z + (temperature/q) H_{q,r}(p)``, to fifty digits.

    Where there are several maxima, the highest of those that a scan of a hundred temperatures tells apart.

    ``q`` a little below 1 is accepted: the stationarity conditions continue analytically through
    q = 1, which makes central differences there possible.

    Args:
        logits: finite numbers, [N]; taken exactly as they are.
        q: first order, > 0.
        r: second order, > 0.
        temperature: scale of the entropy, > 0.

    Returns:
        Probabilities, [N].

    Raises:
        ArithmeticError: Newton's method stalled above the residual.
    """
    with _working_precision(q, r):
        return list(_solution(tuple(map(mpf, logits)), mpf(q), mpf(r), mpf(temperature), mp.prec))


@cache  # every backend is compared with the same fifty digits
def _solution(logits: tuple[mpf, ...], q: mpf, r: mpf, temperature: mpf, bits: int) -> tuple[mpf, ...]:
    """The probabilities, at a working precision of so many bits."""
    with mp.workprec(bits):
        counts = Counter(logits)
        distinct = sorted(counts, reverse=True)
        problem = _Problem(
            shifted=[z - distinct[0] for z in distinct],
            counts=[counts[z] for z in distinct],
            q=q,
            r=r,
            temperature=temperature,
        )
        candidates = [_polish(problem, *start) for start in _rough_stationary_points(problem)]
        best = max(candidates, key=lambda p: _objective(problem, p)) if candidates[1:] else candidates[0]
        by_logit = dict(zip(distinct, best, strict=True))
        return tuple(by_logit[z] for z in logits)


def logits(p: Sequence[Real], q: Real, r: Real) -> list[mpf]:
    """Logits whose map is p / sum(p), to fifty digits: the map's stationarity conditions read backwards, q > 1.

    A class of probability 0 gets the largest logit that leaves it out.
    """
    return list(_stationary_logits(tuple(p), q, r))


@cache
def _stationary_logits(p: tuple[Real, ...], q: Real, r: Real) -> tuple[mpf, ...]:
    with _working_precision(q, r):
        total = mpmath.fsum(map(mpf, p))
        shares = [mpf(v) / total for v in p]
        gap = mpf(q) - 1
        temperature = mp.exp((mpf(q) - mpf(r)) * _renyi(shares, [1] * len(shares), mpf(q)))
        return tuple(temperature * v**gap / gap for v in shares)


def entropy(p: Sequence[Real], q: Real, r: Real) -> mpf:
    """Sharma–Mittal entropy ``expm1((1-r) R_q(p)) / (1-r)``, its limits too, to fifty digits."""
    with _working_precision(q, r):
        return _entropy([mpf(v) for v in p], [1] * len(p), mpf(q), mpf(r))


def fenchel_young_loss(logits: Sequence[Real], target: Sequence[Real], q: Real, r: Real, temperature: Real = 1) -> mpf:
    """``p*·z + (T0/q) H(p*) - z·y - (T0/q) H(y)`` to fifty digits; one row, y on the simplex."""
    p = sharmix(logits, q, r, temperature)
    with _working_precision(q, r):
        scale = mpf(temperature) / mpf(q)
        linear = mpmath.fdot((pi - mpf(yi), mpf(zi)) for pi, yi, zi in zip(p, target, logits, strict=True))
        return linear + scale * (entropy(p, q, r) - entropy(target, q, r))


def worst_error(p: Sequence[float], exact: Sequence[mpf]) -> float:
    """Largest absolute difference; NaN if there is a NaN."""
    return float(np.abs(differences(p, exact)).max())


def differences(p: Sequence[float], exact: Sequence[mpf]) -> Rough:
    """p − exact, taken before anything is rounded, [N]."""
    high, low = _two_floats(tuple(exact))
    return (np.asarray(p, dtype=np.float64) - high) - low


@cache
def _two_floats(exact: tuple[mpf, ...]) -> tuple[Rough, Rough]:
    """Two float64 that make up each number together, to about 32 digits."""
    with mp.workdps(DIGITS):
        high = [float(v) for v in exact]
        return np.array(high), np.array([float(v - h) for v, h in zip(exact, high, strict=True)])


def _working_precision(q: Real, r: Real) -> Any:
    # 1/(q-1) and 1/(1-r) each multiply a difference; the extra digits are the ones it loses.
    gaps = (abs(mpf(q) - 1), abs(mpf(r) - 1))
    lost = sum(-int(mpmath.floor(mpmath.log10(gap))) for gap in gaps if 0 < gap < 1)
    return mp.workdps(DIGITS + 20 + 2 * lost)


def _renyi(p: list[mpf], counts: list[int], q: mpf) -> mpf:
    support = [(n, v) for n, v in zip(counts, p, strict=True) if v > 0]
    if q == 1:
        return -mpmath.fsum(n * v * mp.log(v) for n, v in support)
    return mp.log(mpmath.fsum(n * v**q for n, v in support)) / (1 - q)


def _entropy(p: list[mpf], counts: list[int], q: mpf, r: mpf) -> mpf:
    renyi = _renyi(p, counts, q)
    return renyi if r == 1 else (mp.exp((1 - r) * renyi) - 1) / (1 - r)


def _objective(problem: _Problem, p: list[mpf]) -> mpf:
    linear = mpmath.fsum(n * v * x for n, v, x in zip(problem.counts, p, problem.shifted, strict=True))
    scale = problem.temperature / problem.q
    return linear + scale * _entropy(p, problem.counts, problem.q, problem.r)


def _polish(problem: _Problem, mu: mpf, log_t: mpf) -> list[mpf]:
    """Newton's method in (mu, log T) from a rough start."""
    for _ in range(NEWTON_STEPS):
        p, residual, jacobian = _stationarity(problem, mu, log_t)
        if max(map(abs, residual)) < RESIDUAL:
            return p
        (f, g), ((a, b), (c, d)) = residual, jacobian
        determinant = a * d - b * c
        mu -= (d * f - b * g) / determinant
        log_t -= (a * g - c * f) / determinant
    worst = mpmath.nstr(max(map(abs, residual)), 3)
    raise ArithmeticError(
        f"the reference stalled at residual {worst} for q={problem.q}, r={problem.r},"
        f" temperature={problem.temperature}, {sum(problem.counts)} logits"
    )


def _stationarity(problem: _Problem, mu: mpf, log_t: mpf) -> tuple[Any, Any, Any]:
    """p, the two residuals, and their derivatives by (mu, log T)."""
    q, gap, t = problem.q, problem.q - 1, mp.exp(log_t)
    p: list[mpf] = []
    mass = d_mass_mu = d_mass_t = power = d_power_mu = d_power_t = mpf(0)
    for n, x in zip(problem.counts, problem.shifted, strict=True):
        v = (x - mu) / t
        w = 1 + gap * v
        if w <= 0:
            p.append(mpf(0))
            continue
        p_i = mp.exp(mp.log(w) / gap if gap else v)
        p.append(p_i)
        m = n * p_i
        by_mu = -m / (w * t)
        by_t = t * v * by_mu
        mass += m
        d_mass_mu += by_mu
        d_mass_t += by_t
        if gap:
            power, d_power_mu, d_power_t = (
                power + m * w,
                d_power_mu + w * by_mu,
                d_power_t + w * by_t,
            )
        else:
            power, d_power_mu, d_power_t = (
                power - m * v,
                d_power_mu - (1 + v) * by_mu,
                d_power_t - (1 + v) * by_t,
            )
    if gap:
        renyi = mp.log(power) / -gap
        d_renyi_mu, d_renyi_t = (-q / (gap * power) * d for d in (d_power_mu, d_power_t))
    else:
        renyi, d_renyi_mu, d_renyi_t = power, d_power_mu, d_power_t
    feedback = q - problem.r
    scale = log_t - mp.log(problem.temperature) - feedback * renyi
    jacobian = ((d_mass_mu, d_mass_t), (-feedback * d_renyi_mu, 1 - feedback * d_renyi_t))
    return p, (mass - 1, scale), jacobian


def _rough_stationary_points(problem: _Problem) -> list[tuple[mpf, mpf]]:
    """Every stationary point as (mu, log T), to about float64, by bracketing log T."""
    x = np.array([float(v) for v in problem.shifted])
    counts = np.array(problem.counts, dtype=np.float64)
    q, r, log_t0 = float(problem.q), float(problem.r), float(mp.log(problem.temperature))
    span = (q - r) * math.log(counts.sum())

    def mismatch(log_t: float) -> float:
        p = _rough_probabilities(x, _rough_multiplier(x, counts, q, math.exp(log_t)), q, math.exp(log_t))
        return log_t - log_t0 - (q - r) * _rough_renyi(p, counts, q)

    low, high = log_t0 + min(0.0, span), log_t0 + max(0.0, span)
    # A margin, because at both ends (one class; all classes equal) the root is the end itself.
    margin = 1e-6 + 1e-9 * abs(span)
    points = 2 if problem.is_concave else SCAN_POINTS
    grid = np.linspace(low - margin, high + margin, points)
    values = [mismatch(t) for t in grid]
    roots = [
        brentq(mismatch, a, b, xtol=1e-14, rtol=1e-14)
        for a, b, fa, fb in zip(grid, grid[1:], values, values[1:], strict=False)
        if fa < 0 <= fb or fb < 0 <= fa
    ]
    return [(mpf(_rough_multiplier(x, counts, q, math.exp(t))), mpf(t)) for t in roots]


def _rough_probabilities(x: Rough, mu: float, q: float, t: float) -> Rough:
    v = (x - mu) / t
    with np.errstate(divide="ignore"):
        return np.exp(v if q == 1 else np.log1p(np.maximum((q - 1) * v, -1.0)) / (q - 1))


def _rough_multiplier(x: Rough, counts: Rough, q: float, t: float) -> float:
    size = math.log(counts.sum())
    largest = t * (size if q == 1 else -math.expm1(-(q - 1) * size) / (q - 1))

    def excess(mu: float) -> float:
        return float(counts @ _rough_probabilities(x, mu, q, t)) - 1

    return brentq(excess, -1e-6 * t, largest + 1e-6 * t, xtol=1e-15 * t, rtol=1e-14)


def _rough_renyi(p: Rough, counts: Rough, q: float) -> float:
    n, p = counts[p > 0], p[p > 0]
    if q == 1:
        return -float(n @ (p * np.log(p)))
    # sum p^q by its distance from max(p)^(q-1): exact next to q = 1 and next to equal classes.
    log_p = np.log(p)
    rest = float(n @ (p * np.expm1((q - 1) * (log_p - log_p.max())))) / float(n @ p)
    return -float(log_p.max()) - math.log1p(rest) / (q - 1)
