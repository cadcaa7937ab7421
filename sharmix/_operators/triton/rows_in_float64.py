"""Rows that float32 cannot solve, in float64, read in blocks: q > 2, several maxima, or float64 logits.

1. Find the largest logit.
2. Cut the bracket into cells, from its top down. In the concave region it is one cell. Outside, a cell that can hold no
   root, or none as good as a p already seen, is dropped by the bounds of `sharmix._mathematics.global_maximum`; another
   is halved, until it is so narrow that its roots are equally good.
3. For q > 2, find the two knots around the root: the y at which the last class joined, and the next one joins.
4. Solve the equation between them, measured from the last knot, as in `sharmix._mathematics.knots`.
5. Of the roots of all cells keep that of the largest objective, and write p, or loss and gradient.
"""

import math
from typing import Any, NamedTuple

import triton
import triton.language as tl

from sharmix._operators.triton import equation, outputs
from sharmix._operators.triton.elementary import expm1, expm1_ratio, largest_of, log1p, sum_of_four

_ROUNDING = tl.constexpr(1e-13)  # of a bound, relative to 1 + its size
# Roots in a cell of the width h differ in their objectives by h² at most, beside a knot by h^(1+1/δ): by 1e-12, or from
# so many cells on by 1e-10.
_LOG_NARROW, _LOG_WIDE, _MANY_CELLS = tl.constexpr(math.log(1e-12)), tl.constexpr(math.log(1e-10)), tl.constexpr(16384)
_TOLERANCE = tl.constexpr(1e-15)
_LEAST_SLOPE = tl.constexpr(1e-6)  # a larger slope is positive in spite of rounding
_LEAST_WEIGHT = tl.constexpr(1e-300)  # the divisor in place of a weight of 0


class Row(NamedTuple):
    """Where a row's logits are, the places of a block, and what is the same for all its classes."""

    logits: Any
    places: Any
    classes: Any
    largest: Any
    q: Any
    r: Any
    temperature: Any
    delta: Any


class Root(NamedTuple):
    """A y measured from a knot: y = log(−δ knot) + offset, with offset = m^max(δ, 1), in which p is smooth.

    The knot is the smallest logit of the support, or any x in its place, and `beyond` has no part in it. A logit that
    is the knot itself has the weight 1 − e^(−offset), which may be too small for a float64.
    """

    knot: Any
    beyond: Any
    offset: Any
    weight: Any
    log_weight: Any


class Point(NamedTuple):
    """The sums over a row at a y; R_q, the terms of g = Λ − (q−r) R_q, and of the objective, p·x + H_{q,r}(p)/q."""

    y: Any
    total: Any
    base_u: Any
    base_uu: Any
    power_u: Any
    renyi: Any
    rising: Any
    feedback: Any
    linear: Any
    entropy: Any


@triton.jit
def map_of_rows_in_float64(logits, out, orders, rows, classes, BLOCK: tl.constexpr, ROUGH: tl.constexpr):
    """Writes `MapOutputs` but the support; of all rows, or where ROUGH of those that are not smooth."""
    for number in range(tl.program_id(0), rows, tl.num_programs(0)):
        index = tl.zeros([], tl.int64) + number
        if equation.is_mine(orders, index, tl.float64, ROUGH):
            start = index * classes
            row = _row(logits + start, orders, index, classes, BLOCK)
            root, solution = _solution(row)
            total = tl.where(outputs.is_defined(row.largest), solution.total, float("nan"))
            top = tl.zeros([BLOCK], tl.int32)
            for first in range(0, classes, BLOCK):
                x, place = _loaded(row, first), first + row.places
                _, _, power = _terms(x, root, row.delta)
                outputs.write(out.probabilities + start + place, power / total, place < classes)
                top = tl.maximum(top, tl.where(x == 0, place, 0))
            outputs.write_map(out, index, solution, row.largest, tl.max(top, 0))


@triton.jit
def loss_of_rows_in_float64(logits, labels, out, orders, rows, classes, BLOCK: tl.constexpr, ROUGH: tl.constexpr):
    """Writes `LossOutputs`, of the same rows. The gradient may overwrite the logits."""
    for number in range(tl.program_id(0), rows, tl.num_programs(0)):
        index = tl.zeros([], tl.int64) + number
        if equation.is_mine(orders, index, tl.float64, ROUGH):
            start = index * classes
            target, counted, is_class, factor = outputs.target_of(labels, index, classes)
            if counted:
                own = tl.load(logits + start + tl.where(is_class, target, 0)).to(tl.float64)
                row = _row(logits + start, orders, index, classes, BLOCK)
                root, solution = _solution(row)
                total = tl.where(outputs.is_defined(row.largest) & is_class, solution.total, float("nan"))
                slope = tl.zeros([BLOCK], tl.float64)
                for first in range(0, classes, BLOCK):
                    place = first + row.places
                    _, _, power = _terms(_loaded(row, first), root, row.delta)
                    p = power / total
                    if out.gradients is not None:
                        outputs.write_error(out.gradients, start, place, p, target, factor, classes)
                    if out.slopes is not None:
                        slope += equation.renyi_slopes(p, solution.renyi, row.delta)
                outputs.write_loss(
                    out, index, solution, row.largest, own, is_class, tl.sum(slope, 0), row.q, row.r, row.temperature
                )
            else:
                outputs.write_nothing(out, index)
                if out.gradients is not None:
                    for first in range(0, classes, BLOCK):
                        place = first + tl.arange(0, BLOCK)
                        outputs.write(out.gradients + start + place, tl.zeros([BLOCK], tl.float64), place < classes)


@triton.jit
def _row(logits, orders, index, classes, BLOCK: tl.constexpr):
    q, r, temperature, delta, _ = equation.load_orders(orders, index, classes, tl.float64)
    place = tl.arange(0, BLOCK)
    top = tl.full([BLOCK], -float("inf"), tl.float64)
    for first in range(0, classes, BLOCK):
        z = tl.load(logits + first + place, mask=first + place < classes, other=-float("inf")).to(tl.float64)
        top = tl.where((z > top) | (z != z), z, top)
    return Row(logits, place, classes, largest_of(top), q, r, temperature, delta)


@triton.jit
def _loaded(row, first):
    """The logits of a block, measured from the largest in units of T₀."""
    place = first + row.places
    z = tl.load(row.logits + place, mask=place < row.classes, other=-float("inf")).to(tl.float64)
    return (z - row.largest) / row.temperature


@triton.jit
def _root_of(row, knot, beyond, m):
    steepness = tl.maximum(row.delta, 1.0)
    offset = tl.exp(steepness * tl.log(m))
    weight = -expm1(-offset)
    log_weight = tl.where(weight > _LEAST_WEIGHT, tl.log(weight), steepness * tl.log(m))
    return Root(knot, beyond, offset, weight, log_weight)


@triton.jit
def _terms(x, root, delta):
    """u = w − 1, w^(β−1) and w^β of logits x, each without loss of digits."""
    inside = x > root.beyond
    x = tl.where(inside, x, 0.0)
    ratio = x / root.knot
    u = -ratio * tl.exp(-root.offset)
    w = tl.where(x < root.knot, 1 + u, (root.knot - x) / root.knot + ratio * root.weight)
    inside = inside & ((w > 0) | (x == root.knot))
    w = tl.maximum(w, _LEAST_WEIGHT)
    log_w = tl.log(w) + tl.where(u > -0.5, (u - (w - 1)) / w, 0.0)  # u has the more digits near 0, w near −1
    power = tl.where(inside, tl.exp(tl.where(x == root.knot, root.log_weight, log_w) / delta), 0.0)
    return u, power / w, power


@triton.jit
def _at(row, root):
    """The `Point` of any y."""
    total = row.places * tl.zeros([], tl.float64)
    base_u, base_uu, power_u = total, total, total
    for first in range(0, row.classes, row.places.shape[0]):
        u, base, power = _terms(_loaded(row, first), root, row.delta)
        total += power
        base_u += base * u
        base_uu += base * u * u
        power_u += power * u
    total, base_u, base_uu, power_u = sum_of_four(total, base_u, base_uu, power_u)
    y = tl.log(-row.delta * root.knot) + root.offset
    renyi = tl.log(total) - log1p(power_u / total) / row.delta
    linear = -power_u / total * root.knot * tl.exp(root.offset)
    entropy = renyi * expm1_ratio((1 - row.r) * renyi) / row.q
    rising, feedback = y + row.delta * tl.log(total), (row.q - row.r) * renyi
    return Point(y, total, base_u, base_uu, power_u, renyi, rising, feedback, linear, entropy)


@triton.jit
def _global_root(row):
    """The `Root` of the largest objective, and its `Point`; NaN for a row that has none."""
    low, high = equation.bracket(row.q, row.r, row.classes)
    is_concave = row.r * row.q >= 2 * row.q - 1 - equation.CONCAVITY_TOLERANCE * row.q
    share = tl.maximum(row.delta, 1.0) / (1 + tl.maximum(row.delta, 1.0))
    width, height, cells = tl.exp(share * _LOG_NARROW), high - low, 0
    nan = low + float("nan")
    above = Point(nan, nan, nan, nan, nan, nan, nan, nan, nan, nan)
    root, found, best, seen = Root(nan, nan, nan, nan, nan), above, low * 0 - float("inf"), low * 0
    top = high + height  # the first cell lies above the bracket, and is dropped
    while top > low:
        bottom = tl.maximum(top - height, low)
        knot = -tl.exp(bottom) / row.delta
        below = _at(row, _root_of(row, knot, knot, low * 0))
        seen = tl.maximum(seen, below.linear + below.entropy)
        may_hold = is_concave | _may_hold_maximum(below, above, seen)
        is_done = is_concave | ((top - bottom <= width) | _surely_rises(row, below, above))
        if (may_hold & is_done) & ((below.rising < below.feedback) & (above.rising >= above.feedback)):
            candidate, there = _root(row, below, above)
            if there.linear + there.entropy >= best:
                root, found, best = candidate, there, there.linear + there.entropy
        if is_done | (may_hold == 0):
            top, above, height = bottom, below, height * 2
        else:
            height = height / 2
        cells += 1
        if cells == _MANY_CELLS:
            width = tl.exp(share * _LOG_WIDE)
    return root, found


@triton.jit
def _may_hold_maximum(below, above, seen):
    rounding = _ROUNDING * (1 + above.feedback)
    may_hold_root = (below.rising - above.feedback <= rounding) & (above.rising - below.feedback >= -rounding)
    return may_hold_root & (below.linear + above.entropy + _ROUNDING * (1 + above.entropy) >= seen)


@triton.jit
def _surely_rises(row, below, above):
    """Whether g rises in the whole cell, which then has one root at most.

    For q ≤ 2, as y rises, each term of a sum rises, except for its power of u, which shrinks as e^−y. So the sums at
    the ends bound the sums between, and thus the slope.
    """
    stretch, feedback = tl.exp(above.y - below.y), (row.q - row.r) / row.delta
    least_u, most_u = -below.base_u / stretch / above.total, -above.base_u * stretch / below.total
    excess = above.base_uu * stretch * stretch + below.power_u / stretch * (least_u + row.delta)
    rest = tl.where(excess > 0, below.total + below.power_u, above.total + above.power_u)
    slope = 1 + (1 - feedback) * tl.where(feedback < 1, least_u, most_u) - feedback * excess / (row.delta * rest)
    return (slope > _LEAST_SLOPE) & (row.delta <= 1)


@triton.jit
def _root(row, below, above):
    """The root in a cell, from g < 0 to g ≥ 0, by the method ITP; and its `Point`."""
    knot, beyond = -tl.exp(below.y) / row.delta, -tl.exp(above.y) / row.delta
    least = below.rising - below.feedback
    if row.delta > 1:
        knot, beyond, least, above = _knots_around(row, knot, beyond, least, above)
    low, high = row.delta * 0, tl.exp(tl.log(log1p((beyond - knot) / knot)) / tl.maximum(row.delta, 1.0))
    tolerance, width, reach = _TOLERANCE * (1 + tl.abs(above.y)), high, high
    while (high - low > tolerance) & (reach > tolerance / 4):
        # The secant's zero, pulled towards the middle, so that both ends move; never slower than bisection by a step.
        middle, half, most = (low + high) / 2, (high - low) / 2, above.rising - above.feedback
        zero = (high * least - low * most) / (least - most)
        pull = tl.maximum(0.8 * half * half / width, tolerance / 2)
        zero = tl.where(zero < middle, tl.minimum(zero + pull, middle), tl.maximum(zero - pull, middle))
        allowed = tl.minimum(reach, high - low) - half
        m = tl.minimum(tl.maximum(zero, middle - allowed), middle + allowed)
        point = _at(row, _root_of(row, knot, beyond, m))
        if point.rising < point.feedback:
            low, least = m, point.rising - point.feedback
        else:
            high, above = m, point
        reach = reach / 2
    return _root_of(row, knot, beyond, high), above


@triton.jit
def _knots_around(row, knot, beyond, least, above):
    """The last knot below the root and the next one, from two x with g < 0 and g ≥ 0 at their y."""
    logit = knot
    while logit < float("inf"):
        middle = (knot + beyond) / 2
        lower = tl.full([row.places.shape[0]], -float("inf"), tl.float64)
        upper = -lower
        for first in range(0, row.classes, row.places.shape[0]):
            x = _loaded(row, first)
            lower = tl.maximum(lower, tl.where((x > beyond) & (x <= middle), x, -float("inf")))
            upper = tl.minimum(upper, tl.where((x > middle) & (x < knot), x, float("inf")))
        logit = tl.max(lower, 0)
        logit = tl.where(logit > -float("inf"), logit, tl.min(upper, 0))  # of those between, one next to the middle
        if logit < float("inf"):
            point = _at(row, _root_of(row, logit, beyond, logit * 0))
            if point.rising < point.feedback:
                knot, least = logit, point.rising - point.feedback
            else:
                beyond, above = logit, point
    return knot, beyond, least, above


@triton.jit
def _solution(row):
    """The `Root` and the `equation.Solution` of a row."""
    root, point = _global_root(row)
    conjugate = tl.maximum(point.linear + point.entropy, 0.0) * row.temperature
    conjugate = tl.where(point.total > 0, conjugate, float("nan"))
    solution = equation.Solution(row.delta * tl.exp(-point.y), point.total, conjugate, point.renyi)
    return root, solution
