"""The equation of a row, as in `sharmix._mathematics.equation`, with what its solution gives; in float32 or float64.

A kernel passes the data of a row, and a function of these data, `SUMS(data, scale, power, steps, BETA)`, which gives
the sums of `terms` over the row: from registers, from memory, or together with other programs. BETA is 1/(q − 1) where
that is 1, 2, 3 or 4, whose powers are products, and 0 for any other.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from sharmix._arguments import MOST_Q
from sharmix._operators import orders as limits
from sharmix._operators.triton.elementary import expm1_ratio, expm1_ratio_slope, log1p

MOST_SMOOTH_R = 3.0  # the temperature is T₀ e^((q−r) R_q): a larger r magnifies the rounding of p in the map's gradient

_MOST_SCALE = tl.constexpr(1e38)  # which float32 still holds
_LEAST_DELTA = tl.constexpr(1e-12)  # whose square float32 still holds
_MOST_SMOOTH_R = tl.constexpr(MOST_SMOOTH_R)
MARGIN = tl.constexpr(1e-3)  # the bracket is exact up to rounding, and a root may lie on its end
MOST_STEPS = tl.constexpr(40)
_TRUSTED_STEPS = tl.constexpr(20)  # inside the bracket; bisection then settles what is left
_MOST_Q, _LARGEST_EXPONENT = tl.constexpr(MOST_Q), tl.constexpr(limits.LARGEST_EXPONENT)
CONCAVITY_TOLERANCE = tl.constexpr(limits.CONCAVITY_TOLERANCE[torch.float64])


class Orders(NamedTuple):
    """q, r and T₀ as numbers, or as the addresses where they are: of the row i at i · step."""

    q: float
    r: float
    temperature: float
    q_at: Any
    r_at: Any
    temperature_at: Any
    step: int


class Solution(NamedTuple):
    """A row's p = (1 + scale (z − largest)/T₀)₊^β/total, its conjugate and R_q."""

    scale: Any
    total: Any
    conjugate: Any
    renyi: Any


@triton.jit
def _order(number, at, place, TYPE: tl.constexpr):
    return tl.full([], number, TYPE) if at is None else tl.load(at + place).to(TYPE)


@triton.jit
def load_orders(orders, row, classes, TYPE: tl.constexpr):
    """q, r, T₀, q − 1 and 1/(q − 1) − 1 of a row; q is NaN if an order is out of its range. Numbers were checked."""
    place = row * orders.step
    q, r = _order(orders.q, orders.q_at, place, TYPE), _order(orders.r, orders.r_at, place, TYPE)
    temperature = _order(orders.temperature, orders.temperature_at, place, TYPE)
    delta = tl.maximum(q - 1, _LEAST_DELTA if TYPE is tl.float32 else 1e-30)
    if (orders.q_at is not None) or (orders.r_at is not None) or (orders.temperature_at is not None):
        most = tl.log(tl.full([], 0, TYPE) + tl.maximum(classes, 2))
        allowed = ((q >= 1) & (q <= _MOST_Q)) & ((r > 0) & ((r - 1) * most <= _LARGEST_EXPONENT * (1 + 1e-6)))
        allowed = allowed & ((temperature > 0) & (temperature < float("inf")))
        q, delta = tl.where(allowed, q, float("nan")), tl.where(allowed, delta, float("nan"))
    return q, r, temperature, delta, 1 / delta - 1


@triton.jit
def is_smooth(orders, row):
    """Whether float32 is enough for a row: one maximum, q ≤ 2 and r ≤ 3. Numbers were checked; a NaN is smooth."""
    smooth = tl.full([], 1, tl.int1)
    if (orders.q_at is not None) or (orders.r_at is not None):
        place = row * orders.step
        q = _order(orders.q, orders.q_at, place, tl.float64)
        r = _order(orders.r, orders.r_at, place, tl.float64)
        smooth = (((q > 2) | (r > _MOST_SMOOTH_R)) | (r * q < 2 * q - 1 - CONCAVITY_TOLERANCE * q)) == 0
    return smooth


@triton.jit
def is_mine(orders, row, TYPE: tl.constexpr, ROUGH: tl.constexpr):
    """Whether a launch does a row: in float32 if it is smooth, in float64 if it is not, or where not ROUGH always."""
    mine = tl.full([], 1, tl.int1)
    if tl.float32 == TYPE:
        mine = is_smooth(orders, row)
    elif ROUGH:
        mine = is_smooth(orders, row) == 0
    return mine


@triton.jit
def bracket(q, r, classes):
    """Values of y with g < 0 and g > 0."""
    most = tl.log(q * 0 + classes)
    return -tl.maximum(r - 1, 0.0) * most - MARGIN, tl.maximum(2 - 1 / q - r, 0.0) * most + MARGIN


@triton.jit
def scale_at(y, delta):
    return tl.minimum(delta * tl.exp(-y), _MOST_SCALE)


@triton.jit
def weights(x, scale, power, BETA: tl.constexpr):
    """u = w − 1 and w^(β−1), for logits x measured from the largest in units of T₀."""
    u = tl.maximum(x * scale, -1.0)
    w = 1 + u
    if BETA == 1:
        base = tl.where(u > -1, 1.0, 0.0)
    elif BETA == 2:
        base = w
    elif BETA == 3:
        base = w * w
    elif BETA == 4:
        base = w * w * w
    else:
        inside = u > -1
        base = tl.where(inside, tl.exp(power * log1p(tl.where(inside, u, 0.0))), 0.0)
    return u, base


@triton.jit
def terms(x, scale, power, BETA: tl.constexpr):
    """w^β, w^(β−1) u, w^(β−1) u² and w^β u of each logit."""
    u, base = weights(x, scale, power, BETA)
    part = base * u
    return base + part, part, part * u, (base + part) * u


@triton.jit
def probabilities(x, scale, total, power, BETA: tl.constexpr):
    u, base = weights(x, scale, power, BETA)
    return base * (1 + u) / total


@triton.jit
def point(y, q, r, delta, total, base_u, base_uu, power_u):
    """R_q, δ E_p[x/s], ∂R_q/∂y, the residual and Newton's step, at y."""
    mean = power_u / total
    log_total = tl.log(total)
    renyi = log_total - log1p(mean) / delta
    residual = y + delta * log_total + (r - q) * renyi
    total_slope = -base_u / total
    mean_slope = -base_uu / total - mean * (total_slope + delta)
    renyi_slope = (total_slope - mean_slope / (delta * (mean + 1))) / delta
    slope = (r - q) * renyi_slope + total_slope + 1
    in_y = -residual / slope
    in_s = (tl.exp(-residual) - 1) / slope  # far from the root, for e^g = 1 in s = e^y, which does not overshoot
    far = (tl.abs(in_y) > 1) & (in_s > -1)
    step = tl.where(far, tl.log(1 + tl.where(far, in_s, 0.0)), in_y)
    return renyi, mean, renyi_slope, residual, step


@triton.jit
def following(y, step, residual, low, high, steps):
    """The bracket that the residual at y leaves, and the next y."""
    low = tl.where(residual < 0, y, low)
    high = tl.where(residual < 0, high, y)
    trusted = (y + step >= low) & (y + step <= high) & (steps < _TRUSTED_STEPS)
    return low, high, tl.where(trusted, y + step, (low + high) / 2)


@triton.jit
def _last_step(y, delta):
    """The length of Newton's last step: a first-order correction leaves its square, or near a knot its power β."""
    return tl.maximum(tl.minimum(tl.maximum(tl.exp(-23 * delta), 1e-6), 2e-4), 2.4e-7 * tl.abs(y))


@triton.jit
def solve(data, q, r, temperature, delta, power, classes, SUMS: tl.constexpr, BETA: tl.constexpr):
    """The `Solution` of a row, by Newton's method within the bracket, and the scale before the last step."""
    low, high = bracket(q, r, classes)
    y, step, residual, steps = high, high * 0 + 1, high * 0, 0
    renyi, mean, renyi_slope, total, base_u = high * 0, high * 0, high * 0, high * 0, high * 0
    while (tl.abs(step) > _last_step(y, delta)) & (steps < MOST_STEPS):
        if steps > 0:
            low, high, y = following(y, step, residual, low, high, steps)
        total, base_u, base_uu, power_u = SUMS(data, scale_at(y, delta), power, steps, BETA)
        renyi, mean, renyi_slope, residual, step = point(y, q, r, delta, total, base_u, base_uu, power_u)
        steps += 1
    linear = mean / delta * tl.exp(y)
    conjugate = tl.maximum(linear + renyi * expm1_ratio((1 - r) * renyi) / q, 0.0) * temperature
    total -= step / delta * base_u  # by d(w^β)/dy = −β w^(β−1) u
    conjugate = tl.where(total > 0, conjugate, float("nan"))
    solution = Solution(scale_at(y + step, delta), total, conjugate, renyi + step * renyi_slope)
    return solution, scale_at(y, delta)


@triton.jit
def renyi_slopes(p, renyi, delta):
    """The terms of ∂R_q/∂q."""
    t = tl.log(tl.maximum(p, 1e-37)) + renyi
    return -p * t * t * expm1_ratio_slope(delta * t)


@triton.jit
def slopes_of_loss(renyi_slope, renyi, q, r, temperature):
    """∂L/∂q, ∂L/∂r and ∂L/∂T₀ from ∂R_q/∂q."""
    heat = (1 - r) * renyi
    entropy = renyi * expm1_ratio(heat)
    by_q = temperature * (tl.exp(heat) * renyi_slope - entropy / q) / q
    return by_q, -temperature / q * renyi * renyi * expm1_ratio_slope(heat), entropy / q
