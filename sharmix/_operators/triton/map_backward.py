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


class Given(NamedTuple):
    """p and g, and what the map's kernel left: see `outputs.MapOutputs`. Nothing but p and g need be there."""

    probabilities: Any
    grads: Any
    tops: Any
    support: Any
    counts: Any


class Point(NamedTuple):
    """What the terms of the sums need to know of a row; log p and g are measured from the largest p."""

    renyi: Any
    mirrored: Any
    delta: Any
    reference: Any
    origin: Any


@triton.jit
def map_backward(
    given, by_logits, slopes, orders, classes,
    BETA: tl.constexpr, BLOCK: tl.constexpr, ROOM: tl.constexpr, TYPE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Writes ∂/∂z [rows, classes], and into `slopes` [rows, 3], if it is not None, those by q, r and T₀."""
    index = tl.program_id(0)
    if equation.is_mine(orders, index, ROWS):
        start = tl.cast(index, tl.int64) * classes
        p, g, result = given.probabilities + start, given.grads + start, by_logits + start
        scalars = equation.orders_of(orders, index, classes, TYPE)
        _, _, _, delta, _ = scalars
        largest, origin = _at_largest(given, p, g, index, classes, BLOCK, TYPE)
        reference = tl.log(largest)
        count = tl.full([], -1, tl.int32)
        if given.counts is not None:
            count = tl.load(given.counts + index)
        if count >= 0:
            entry = tl.arange(0, ROOM)
            place = tl.load(given.support + index * ROOM + entry, mask=entry < count, other=0)
            share, direction = _loaded(p, g, place, entry < count, origin, TYPE)
            risen, fallen = _entropy_terms(share, reference, delta)
            point = _point(risen, fallen, delta, reference, origin)
            totals = _terms(share, direction, point, slopes is not None, BETA)
            sums = _sums(totals, delta, slopes is not None)
            factors = _factors(slopes, index, sums, point, scalars)
            for first in range(0, classes, BLOCK):
                others = first + tl.arange(0, BLOCK)
                tl.store(result + others, tl.zeros([BLOCK], by_logits.dtype.element_ty), mask=others < classes)
            tl.debug_barrier()  # the zeros come first
            _write(result, place, entry < count, share, direction, sums, factors, point, BETA)
        else:
            risen, fallen = tl.zeros([BLOCK], TYPE), tl.zeros([BLOCK], TYPE)
            for first in range(0, classes, BLOCK):
                place = first + tl.arange(0, BLOCK)
                share = tl.load(p + place, mask=place < classes, other=0.0).to(TYPE)
                rise, fall = _entropy_terms(share, reference, delta)
                risen, fallen = risen + rise, fallen + fall
            point = _point(risen, fallen, delta, reference, origin)
            totals = _terms(risen * 0, risen * 0, point, slopes is not None, BETA)
            for first in range(0, classes, BLOCK):
                place = first + tl.arange(0, BLOCK)
                share, direction = _loaded(p, g, place, place < classes, origin, TYPE)
                totals = _added(totals, _terms(share, direction, point, slopes is not None, BETA), slopes is not None)
            sums = _sums(totals, delta, slopes is not None)
            factors = _factors(slopes, index, sums, point, scalars)
            for first in range(0, classes, BLOCK):
                place = first + tl.arange(0, BLOCK)
                share, direction = _loaded(p, g, place, place < classes, origin, TYPE)
                _write(result, place, place < classes, share, direction, sums, factors, point, BETA)


@triton.jit
def _at_largest(given, p, g, index, classes, BLOCK: tl.constexpr, TYPE: tl.constexpr):
    """The largest p of a row, and g there."""
    if given.tops is not None:
        top = tl.load(given.tops + index)
    else:
        place = tl.arange(0, BLOCK)
        highest, where = tl.load(p + place, mask=place < classes, other=-1.0).to(TYPE), place
        for first in range(BLOCK, classes, BLOCK):
            other = tl.load(p + first + place, mask=first + place < classes, other=-1.0).to(TYPE)
            where = tl.where(other > highest, first + place, where)
            highest = tl.where(other > highest, other, highest)
        top = tl.max(tl.where(highest == tl.max(highest, 0), where, 0), 0)
    return tl.load(p + top).to(TYPE), tl.load(g + top).to(TYPE)


@triton.jit
def _loaded(p, g, place, inside, origin, TYPE: tl.constexpr):
    """p, and g from its origin; 0 off the support, where g may be infinite."""
    share = tl.load(p + place, mask=inside, other=0.0).to(TYPE)
    direction = tl.load(g + place, mask=inside, other=0.0).to(TYPE) - origin
    return share, tl.where(share == 0, 0.0, direction)


@triton.jit
def _log(p, reference):
    """log p; off the support that of the largest p, which is finite, and whose terms p makes 0."""
    return tl.where(p > 0, tl.log(tl.maximum(p, 1e-37)), reference)


@triton.jit
def _entropy_terms(p, reference, delta):
    rise = delta * (_log(p, reference) - reference)
    return p * expm1(rise), p * expm1(-rise)


@triton.jit
def _point(risen, fallen, delta, reference, origin):
    risen, fallen = sum_of_two(risen, fallen)
    renyi, mirrored = -reference - log1p(risen) / delta, -reference + log1p(fallen) / delta
    return Point(renyi, mirrored, delta, reference, origin)


@triton.jit
def _shares(p, point, BETA: tl.constexpr):
    """The escort distribution p^(2−q)/Σ p^(2−q), and (p − escort)/(q − 1); by roots alone where β is 1, 2 or 4."""
    shrink = tl.exp(-point.delta * point.mirrored)
    if BETA == 1:
        escort = tl.where(p > 0, shrink, p)
    elif BETA == 2:
        escort = tl.sqrt(p) * shrink
    elif BETA == 4:
        escort = tl.sqrt(p) * tl.sqrt(tl.sqrt(p)) * shrink
    else:
        escort = p
    if BETA == 1 or BETA == 2 or BETA == 4:
        spread = (p - escort) / point.delta
    else:
        lost = -expm1(-point.delta * (_log(p, point.reference) + point.mirrored))
        escort, spread = p * (1 - lost), p * (lost / point.delta)
    return escort, spread


@triton.jit
def _terms(p, direction, point, SLOPES: tl.constexpr, BETA: tl.constexpr):
    delta, renyi, log_p = point.delta, point.renyi, _log(p, point.reference)
    escort, spread = _shares(p, point, BETA)
    if BETA == 1:
        tilt = (p * tl.exp(delta * renyi) - 1) / delta
    elif BETA == 2:
        tilt = (tl.sqrt(p) * tl.exp(delta * renyi) - 1) / delta
    elif BETA == 4:
        tilt = (tl.sqrt(tl.sqrt(p)) * tl.exp(delta * renyi) - 1) / delta
    else:
        tilt = expm1(delta * (log_p + renyi)) / delta
    weighted, slope = p * 0, p * 0
    if SLOPES:
        raised = log_p + point.mirrored
        weighted = p * raised * raised * expm1_remainder(-delta * raised)
        slope = equation.renyi_slopes(p, renyi, delta)
    return (
        escort * direction, spread * direction, spread * tilt, spread,
        weighted, p * direction, weighted * direction, weighted * tilt, p * log_p, slope,
    )  # fmt: skip


@triton.jit
def _added(totals, some, SLOPES: tl.constexpr):
    a, b, c, d, e, f, g, h, i, j = totals
    a, b, c, d = a + some[0], b + some[1], c + some[2], d + some[3]
    if SLOPES:
        e, f, g, h, i, j = e + some[4], f + some[5], g + some[6], h + some[7], i + some[8], j + some[9]
    return a, b, c, d, e, f, g, h, i, j


@triton.jit
def _sums(totals, delta, SLOPES: tl.constexpr):
    """Mean and covariances of a row, and what its slopes need.

    Σ spread would be 0 but for the error of R_(2−q), which it takes out of the mean and of `along`.
    """
    mean, along = sum_of_two(totals[0], totals[1])
    covariance, drift = sum_of_two(totals[2], totals[3])
    mean = mean / (1 - delta * drift)
    along -= drift * mean
    weight, along_p, along_weighted, tilted, shannon, slope = mean, mean, mean, mean, mean, mean
    if SLOPES:
        weight, along_p = sum_of_two(totals[4], totals[5])
        along_weighted, tilted = sum_of_two(totals[6], totals[7])
        shannon, slope = sum_of_two(totals[8], totals[9])
    return mean, along, covariance, weight, along_p, along_weighted, tilted, shannon, slope


@triton.jit
def _factors(slopes, index, sums, point, scalars):
    """The factors of escort and spread in the gradient, and of both; writes the slopes."""
    mean, along, covariance, weight, along_p, along_weighted, tilted, shannon, renyi_slope = sums
    q, r, temperature, delta, _ = scalars
    gap, renyi = r - q, point.renyi
    stiffness = 1 + gap * q * covariance
    heat = temperature * tl.exp(-gap * renyi)
    factor = tl.minimum(1 / tl.sqrt(heat), 1e30)  # twice: for a large r 1/heat overflows, and infinity times 0 is NaN
    if slopes is not None:
        heating = (renyi + shannon - gap * (renyi_slope + q * tilted)) / stiffness
        out = slopes + index * 3
        tl.store(out, (along_p * weight - along_weighted - heating * along).to(slopes.dtype.element_ty))
        tl.store(out + 1, (along * renyi / stiffness).to(slopes.dtype.element_ty))
        tl.store(out + 2, (-along / temperature / stiffness).to(slopes.dtype.element_ty))
    by_spread = gap * q / stiffness * tl.exp(delta * renyi) * along * factor
    return tl.exp(delta * point.mirrored) * factor, by_spread, factor


@triton.jit
def _write(result, place, inside, p, direction, sums, factors, point, BETA: tl.constexpr):
    by_escort, by_spread, factor = factors
    escort, spread = _shares(p, point, BETA)
    gradient = factor * (by_escort * escort * (direction - sums[0]) - by_spread * spread)
    tl.store(result + place, gradient.to(result.dtype.element_ty), mask=inside)
