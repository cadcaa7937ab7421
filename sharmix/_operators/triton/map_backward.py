"""The gradients of a map: (∂p/∂z) g of each row, and its slopes along g by q, r and T₀ (docs/math.md, section 4).

1. R_q and R_(2−q), from p. The largest p is the reference of all logarithms; and since a constant added to g changes no
   result, g is measured from its value there, so that no digits cancel.
2. Sums over the support.
3. The gradients.

The support is the list that the map's kernel left; rows without one are read block by block.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from sharmix._operators.triton import equation
from sharmix._operators.triton.elementary import expm1, expm1_remainder, log1p, sum_of_two
from sharmix._operators.triton.outputs import write


class Given(NamedTuple):
    """p and g, and what the map's kernel left: see `outputs.MapOutputs`. Nothing but p and g need be there."""

    probabilities: Any
    grads: Any
    tops: Any
    support: Any
    counts: Any


class Row(NamedTuple):
    """Where the p of a row, its g and its gradient begin."""

    probabilities: Any
    grads: Any
    by_logits: Any


class Point(NamedTuple):
    """R_q, R_(2−q) and q − 1 of a row, and the logarithm of its largest p, from which others are measured."""

    renyi: Any
    mirrored: Any
    delta: Any
    reference: Any


class Sums(NamedTuple):
    """Over a row: the mean of g, its covariances, and what the slopes need."""

    mean: Any
    along: Any
    covariance: Any
    weight: Any
    along_p: Any
    along_weighted: Any
    tilted: Any
    shannon: Any
    renyi_slope: Any


@triton.jit
def map_backward(
    given, by_logits, slopes, orders, classes,
    BETA: tl.constexpr, BLOCK: tl.constexpr, ROOM: tl.constexpr, TYPE: tl.constexpr, ROUGH: tl.constexpr,
):  # fmt: skip
    """Writes ∂/∂z [rows, classes], and into `slopes` [rows, 3], if it is not None, those by q, r and T₀."""
    index = tl.program_id(0).to(tl.int64)
    if equation.is_mine(orders, index, TYPE, ROUGH):
        start = index * classes
        row = Row(given.probabilities + start, given.grads + start, by_logits + start)
        own = None if slopes is None else slopes + index * 3
        scalars = equation.load_orders(orders, index, classes, TYPE)
        largest, origin = _at_largest(given, row, index, classes, BLOCK, TYPE)
        if given.support is None:
            _from_row(row, own, largest, origin, scalars, classes, BETA, BLOCK)
        else:
            count = tl.load(given.counts + index)
            if count >= 0:
                _from_list(
                    row, given.support + index * ROOM, count, own, largest, origin, scalars, classes, BETA, BLOCK, ROOM
                )
            else:
                _from_row(row, own, largest, origin, scalars, classes, BETA, BLOCK)


@triton.jit
def _from_list(
    row, support, count, slopes, largest, origin, scalars, classes,
    BETA: tl.constexpr, BLOCK: tl.constexpr, ROOM: tl.constexpr,
):  # fmt: skip
    entry = tl.arange(0, ROOM)
    place = tl.load(support + entry, mask=entry < count, other=0)
    p, direction = _loaded(row, place, entry < count, origin)
    _, _, _, delta, _ = scalars
    risen, fallen = _entropy_terms(p, largest, delta, BETA)
    point = _point(risen, fallen, largest, delta)
    sums = _sums(_terms(p, direction, point, slopes is not None, BETA), point, slopes is not None)
    factors = _factors(slopes, sums, point, scalars)
    for first in range(0, classes, BLOCK):
        others = first + tl.arange(0, BLOCK)
        tl.store(row.by_logits + others, tl.zeros([BLOCK], row.by_logits.dtype.element_ty), mask=others < classes)
    tl.debug_barrier()  # the zeros come first
    _write(row, place, entry < count, p, direction, sums, factors, point, BETA)


@triton.jit
def _from_row(row, slopes, largest, origin, scalars, classes, BETA: tl.constexpr, BLOCK: tl.constexpr):
    _, _, _, delta, _ = scalars
    risen = tl.zeros([BLOCK], largest.dtype)
    fallen = risen
    for first in range(0, classes, BLOCK):
        place = first + tl.arange(0, BLOCK)
        p = tl.load(row.probabilities + place, mask=place < classes, other=0.0).to(largest.dtype)
        rise, fall = _entropy_terms(p, largest, delta, BETA)
        risen, fallen = risen + rise, fallen + fall
    point = _point(risen, fallen, largest, delta)
    totals = _terms(risen * 0, risen * 0, point, slopes is not None, BETA)
    for first in range(0, classes, BLOCK):
        place = first + tl.arange(0, BLOCK)
        p, direction = _loaded(row, place, place < classes, origin)
        totals = _added(totals, _terms(p, direction, point, slopes is not None, BETA), slopes is not None)
    sums = _sums(totals, point, slopes is not None)
    factors = _factors(slopes, sums, point, scalars)
    for first in range(0, classes, BLOCK):
        place = first + tl.arange(0, BLOCK)
        p, direction = _loaded(row, place, place < classes, origin)
        _write(row, place, place < classes, p, direction, sums, factors, point, BETA)


@triton.jit
def _at_largest(given, row, index, classes, BLOCK: tl.constexpr, TYPE: tl.constexpr):
    """The largest p of a row, and g there."""
    if given.tops is not None:
        top = tl.load(given.tops + index)
    else:
        place = tl.arange(0, BLOCK)
        highest, where = tl.load(row.probabilities + place, mask=place < classes, other=-1.0).to(TYPE), place
        for first in range(BLOCK, classes, BLOCK):
            other = tl.load(row.probabilities + first + place, mask=first + place < classes, other=-1.0).to(TYPE)
            where = tl.where(other > highest, first + place, where)
            highest = tl.where(other > highest, other, highest)
        top = tl.max(tl.where(highest == tl.max(highest, 0), where, 0), 0)
    return tl.load(row.probabilities + top).to(TYPE), tl.load(row.grads + top).to(TYPE)


@triton.jit
def _loaded(row, place, inside, origin):
    """p, and g from its origin; 0 off the support, where g may be infinite."""
    p = tl.load(row.probabilities + place, mask=inside, other=0.0).to(origin.dtype)
    direction = tl.load(row.grads + place, mask=inside, other=0.0).to(origin.dtype) - origin
    return p, tl.where(p == 0, 0.0, direction)


@triton.jit
def _log(p, reference):
    """log p; off the support that of the largest p, which is finite, and whose terms p makes 0."""
    return tl.where(p > 0, tl.log(tl.maximum(p, 1e-37)), reference)


@triton.jit
def _root(p, BETA: tl.constexpr):
    """p^(q−1), where that is a root of p."""
    root = p
    if BETA > 1:
        root = tl.sqrt(root)
    if BETA == 4:
        root = tl.sqrt(root)
    return root


@triton.jit
def _entropy_terms(p, largest, delta, BETA: tl.constexpr):
    """The terms of Σ p ((p/largest)^(q−1) − 1), and of the same with 1 − q."""
    if BETA == 1 or BETA == 2 or BETA == 4:
        root = _root(p / largest, BETA)
        risen, fallen = p * (root - 1), tl.where(p > 0, p / root - p, p)
    else:
        reference = tl.log(largest)
        rise = delta * (_log(p, reference) - reference)
        risen, fallen = p * expm1(rise), p * expm1(-rise)
    return risen, fallen


@triton.jit
def _point(risen, fallen, largest, delta):
    risen, fallen = sum_of_two(risen, fallen)
    reference = tl.log(largest)
    renyi, mirrored = -reference - log1p(risen) / delta, -reference + log1p(fallen) / delta
    return Point(renyi, mirrored, delta, reference)


@triton.jit
def _shares(p, point, BETA: tl.constexpr):
    """The escort distribution p^(2−q)/Σ p^(2−q), and (p − escort)/(q − 1)."""
    if BETA == 1 or BETA == 2 or BETA == 4:
        root = _root(p, BETA)
        escort = tl.where(p > 0, p / root, p) * tl.exp(-point.delta * point.mirrored)
        spread = (p - escort) / point.delta
    else:
        lost = -expm1(-point.delta * (_log(p, point.reference) + point.mirrored))
        escort, spread = p * (1 - lost), p * (lost / point.delta)
    return escort, spread


@triton.jit
def _terms(p, direction, point, SLOPES: tl.constexpr, BETA: tl.constexpr):
    """The terms of the sums that `_sums` names."""
    delta, renyi = point.delta, point.renyi
    escort, spread = _shares(p, point, BETA)
    if BETA == 1 or BETA == 2 or BETA == 4:
        tilt = (_root(p, BETA) * tl.exp(delta * renyi) - 1) / delta
    else:
        tilt = expm1(delta * (_log(p, point.reference) + renyi)) / delta
    weighted, shannon, slope = p * 0, p * 0, p * 0
    if SLOPES:
        log_p = _log(p, point.reference)
        raised = log_p + point.mirrored
        weighted = p * raised * raised * expm1_remainder(-delta * raised)
        shannon, slope = p * log_p, equation.renyi_slopes(p, renyi, delta)
    return (
        escort * direction, spread * direction, spread * tilt, spread,
        weighted, p * direction, weighted * direction, weighted * tilt, shannon, slope,
    )  # fmt: skip


@triton.jit
def _added(totals, some, SLOPES: tl.constexpr):
    a, b, c, d, e, f, g, h, i, j = totals
    a, b, c, d = a + some[0], b + some[1], c + some[2], d + some[3]
    if SLOPES:
        e, f, g, h, i, j = e + some[4], f + some[5], g + some[6], h + some[7], i + some[8], j + some[9]
    return a, b, c, d, e, f, g, h, i, j


@triton.jit
def _sums(totals, point, SLOPES: tl.constexpr):
    """The `Sums` of a row.

    Σ spread would be 0 but for the error of R_(2−q), which it takes out of the mean and of `along`.
    """
    mean, along = sum_of_two(totals[0], totals[1])
    covariance, drift = sum_of_two(totals[2], totals[3])
    mean = mean / (1 - point.delta * drift)
    along -= drift * mean
    weight, along_p, along_weighted, tilted, shannon, slope = mean, mean, mean, mean, mean, mean
    if SLOPES:
        weight, along_p = sum_of_two(totals[4], totals[5])
        along_weighted, tilted = sum_of_two(totals[6], totals[7])
        shannon, slope = sum_of_two(totals[8], totals[9])
    return Sums(mean, along, covariance, weight, along_p, along_weighted, tilted, shannon, slope)


@triton.jit
def _factors(slopes, sums, point, scalars):
    """The factors of escort and spread in the gradient, and of both; writes the slopes."""
    q, r, temperature, delta, _ = scalars
    gap, renyi, along = r - q, point.renyi, sums.along
    stiffness = 1 + gap * q * sums.covariance
    heat = temperature * tl.exp(-gap * renyi)
    factor = tl.minimum(1 / tl.sqrt(heat), 1e30)  # twice: for a large r 1/heat overflows, and infinity times 0 is NaN
    if slopes is not None:
        heating = (renyi + sums.shannon - gap * (sums.renyi_slope + q * sums.tilted)) / stiffness
        by_q = sums.along_p * sums.weight - sums.along_weighted - heating * along
        tl.store(slopes, by_q.to(slopes.dtype.element_ty))
        tl.store(slopes + 1, (along * renyi / stiffness).to(slopes.dtype.element_ty))
        tl.store(slopes + 2, (-along / temperature / stiffness).to(slopes.dtype.element_ty))
    by_spread = gap * q / stiffness * tl.exp(delta * renyi) * along * factor
    return tl.exp(delta * point.mirrored) * factor, by_spread, factor


@triton.jit
def _write(row, place, inside, p, direction, sums, factors, point, BETA: tl.constexpr):
    by_escort, by_spread, factor = factors
    escort, spread = _shares(p, point, BETA)
    gradient = factor * (by_escort * escort * (direction - sums.mean) - by_spread * spread)
    write(row.by_logits + place, gradient, inside)
