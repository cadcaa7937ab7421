"""The map and its loss on CUDA in Triton, one program a row; the notation is that of `_mathematics`.

A short row is read once and stays in registers. For a longer row, a first kernel finds the candidates: the classes that
can have a probability above 0. If there is room for them, each sum is over the candidates alone. Otherwise each sum
reads the whole row again, block by block: from the caches, if these hold all rows in progress.
For float32 logits the root is found in float32, and float64 takes the last steps; for half precision float32 is enough.
The few numbers that describe the solution of a row are float64 throughout.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sharmix._operators import any_device
from sharmix._operators.orders import Orders, Slopes, columns, is_concave, largest
from sharmix._targets import label_error

_SHORT = 2048  # classes in registers: with more in each thread, or more threads, registers are spilled to memory
_BLOCK = 256  # classes of a longer row, or candidates, that are read at a time
_CLASSES_OF_WARP = 128
_SEARCHED = 512  # classes at a time, in the search for candidates
_MOST_CANDIDATES = 4096  # of a row, and at most a quarter of its classes: there is room for no more
_GRADIENT = 64  # classes of a block of the loss's gradient, which needs no powers if none of them is in the support
_BLOCKS_OF_PROGRAM = tl.constexpr(16)  # blocks of the loss's gradient that one program computes
_MOST_SCALE = tl.constexpr(1e38)  # which float32 still holds
_LEAST_DELTA = tl.constexpr(1e-15)  # whose square float32 still holds
_MARGIN = tl.constexpr(1e-3)  # the bracket is exact up to rounding, and a root may lie on its end
_NEAR = tl.constexpr(1e-3)  # the last step in float32, where float64 follows
_LOG_CORRECTED = tl.constexpr(-23.0)  # of the part of the last step that a first-order correction of p leaves
_TRUSTED_STEPS = tl.constexpr(20)  # inside the bracket; bisection then settles what is left
_MOST_STEPS = tl.constexpr(100)


@triton.jit
def _log1p(u):
    total = 1 + u
    return tl.log(total) + (u - (total - 1)) / total


@triton.jit
def _expm1_remainder(x):
    """(eˣ − 1 − x)/x²."""
    near = 1 / 120 + x * (1 / 720 + x * (1 / 5040 + x * (1 / 40320 + x / 362880)))
    near = 0.5 + x * (1 / 6 + x * (1 / 24 + x * near))
    far = (tl.exp(x) - 1 - x) / (x * x)
    return tl.where(tl.abs(x) < 0.5, near, far)


@triton.jit
def _expm1(x):
    return tl.where(tl.abs(x) < 0.5, x + x * x * _expm1_remainder(x), tl.exp(x) - 1)


@triton.jit
def _expm1_ratio(x):
    """(eˣ − 1)/x."""
    return 1 + x * _expm1_remainder(x)


@triton.jit
def _expm1_ratio_slope(x):
    """(eˣ − 1)/x differentiated by x."""
    near = 1 / 30 + x * (1 / 144 + x * (1 / 840 + x * (1 / 5760 + x / 45360)))
    near = 0.5 + x * (1 / 3 + x * (1 / 8 + x * near))
    far = (tl.exp(x) * (x - 1) + 1) / (x * x)
    return tl.where(tl.abs(x) < 0.5, near, far)


@triton.jit
def _loaded(row, start, classes, other, BLOCK: tl.constexpr):
    place = start + tl.arange(0, BLOCK)
    return tl.load(row + place, mask=place < classes, other=other)


@triton.jit
def _places(indices, start, count, classes, BLOCK: tl.constexpr):
    """Where a block's entries lie in the row, and which of them exist: of all classes, or of the candidates."""
    place = start + tl.arange(0, BLOCK)
    inside = place < count
    if indices is not None:  # noqa: SIM102 (of an `and` Triton would compile both parts)
        if count < classes:
            place = tl.load(indices + place, mask=inside, other=0)
    return place, inside


@triton.jit
def _largest(row, classes, BLOCK: tl.constexpr):
    """The largest logit of a row; NaN if there is a NaN."""
    top = tl.full([BLOCK], -float("inf"), tl.float32)
    doubt = tl.zeros([BLOCK], tl.int32)
    for start in range(0, classes, BLOCK):
        z = _loaded(row, start, classes, -float("inf"), BLOCK).to(tl.float32)
        top = tl.maximum(top, z)
        doubt = doubt | (z != z).to(tl.int32)
    return tl.where(tl.max(doubt, 0) > 0, float("nan"), tl.max(top, 0))


@triton.jit
def _weights(x, scale, power, COMPUTE: tl.constexpr):
    """u = w − 1 and w^(β−1), for logits x measured from the largest in units of T₀."""
    u = tl.maximum(x.to(COMPUTE) * tl.minimum(scale, _MOST_SCALE).to(COMPUTE), -1.0)
    inside = u > -1
    return u, tl.where(inside, tl.exp(power.to(COMPUTE) * _log1p(tl.where(inside, u, 0.0))), 0.0)


@triton.jit
def _terms(z, largest, unit, scale, power, COMPUTE: tl.constexpr):
    """w^β, w^(β−1) u, w^(β−1) u² and w^β u of each logit."""
    x = (z.to(COMPUTE) - largest.to(COMPUTE)) * unit.to(COMPUTE)
    u, base = _weights(x, scale, power, COMPUTE)
    part = base * u
    return base + part, part, part * u, (base + part) * u


@triton.jit
def _find_candidates(
    values, counts, tops, kept, indices, room, classes, orders, q: tl.float64, r: tl.float64, temperature: tl.float64,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Each row's largest value, and its candidates: of logits, which are kept, those at most T₀/(q − 1) below it.

    Of probabilities they are those above 0. If there are none, or no room, `counts` has the number of all classes.
    """
    index = tl.program_id(0).to(tl.int64)
    row = values + index * classes
    q, r, temperature = _orders_of(index, orders, q, r, temperature)
    largest = _largest(row, classes, BLOCK)
    # s = e^y is at most 1 where r ≥ 2 − 1/q, but for the margin of the bracket; as much again is for rounding.
    width = 1 / tl.maximum(q - 1, _LEAST_DELTA)
    width, unit = (width + width * 2 * _MARGIN).to(tl.float32), (1 / temperature).to(tl.float32)
    count = tl.zeros([], tl.int32)
    for start in range(0, classes, BLOCK):
        value = _loaded(row, start, classes, -float("inf"), BLOCK).to(tl.float32)
        is_candidate = value > 0 if kept is None else (largest - value) * unit <= width
        rank = count + tl.cumsum(is_candidate.to(tl.int32), 0)
        place, has_room = index * room + rank - 1, is_candidate & (rank <= room)
        if kept is not None:
            tl.store(kept + place, value.to(kept.dtype.element_ty), mask=has_room)
        if indices is not None:
            tl.store(indices + place, start + tl.arange(0, BLOCK), mask=has_room)
        count += tl.sum(is_candidate.to(tl.int32), 0)
    tl.store(counts + index, tl.where((count > 0) & (count <= room), count, classes))
    tl.store(tops + index, largest)


@triton.jit
def _sums(
    row, cached, classes, largest, unit, scale, power, BLOCK: tl.constexpr, ONE: tl.constexpr, COMPUTE: tl.constexpr
):
    """The sums of `_terms` over a row."""
    if ONE:
        total, base_u, base_uu, power_u = _terms(cached, largest, unit, scale, power, COMPUTE)
    else:
        total, base_u = tl.zeros([BLOCK], COMPUTE), tl.zeros([BLOCK], COMPUTE)
        base_uu, power_u = tl.zeros([BLOCK], COMPUTE), tl.zeros([BLOCK], COMPUTE)
        for start in range(0, classes, BLOCK):
            z = _loaded(row, start, classes, -float("inf"), BLOCK).to(tl.float32)
            one, by_u, by_uu, higher = _terms(z, largest, unit, scale, power, COMPUTE)
            total += one
            base_u += by_u
            base_uu += by_uu
            power_u += higher
    return (
        tl.sum(total, 0).to(tl.float64),
        tl.sum(base_u, 0).to(tl.float64),
        tl.sum(base_uu, 0).to(tl.float64),
        tl.sum(power_u, 0).to(tl.float64),
    )


@triton.jit
def _point(y, q, r, delta, total, base_u, base_uu, power_u):
    """δ E_p[x/s], R_q, and Newton's step, at y."""
    mean = power_u / total
    log_total = tl.log(total)
    renyi = log_total - _log1p(mean) / delta
    residual = y + delta * log_total + (r - q) * renyi
    total_slope = -base_u / total
    mean_slope = -base_uu / total - mean * (total_slope + delta)
    slope = (r - q) * (total_slope - mean_slope / (delta * (mean + 1))) / delta + total_slope + 1
    in_y = -residual / slope
    in_s = (tl.exp(-residual) - 1) / slope  # far from the root, for e^g = 1 in s = e^y, which does not overshoot
    far = (tl.abs(in_y) > 1) & (in_s > -1)
    step = tl.where(far, tl.log(1 + tl.where(far, in_s, 0.0)), in_y)
    return mean, renyi, residual, step


@triton.jit
def _following(y, step, residual, low, high, steps):
    """The bracket that the residual at y leaves, and the next y."""
    low = tl.where(residual < 0, y, low)
    high = tl.where(residual < 0, high, y)
    trusted = (y + step >= low) & (y + step <= high) & (steps < _TRUSTED_STEPS)
    return low, high, tl.where(trusted, y + step, (low + high) / 2)


@triton.jit
def _last_step(delta, COMPUTE: tl.constexpr):
    """The length of Newton's last step: a first-order correction of p then leaves no error that matters."""
    last = tl.exp((1 / tl.minimum(1 / delta, 2.0)) * _LOG_CORRECTED)
    return last if tl.float64 == COMPUTE else tl.maximum(last, 1e-6)


@triton.jit
def _root(
    row, cached, classes, largest, unit, q, r, delta, y, low, high, last_step,
    BLOCK: tl.constexpr, ONE: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """The y whose next step is at most `last_step`, that step, and the results of `_sums` and `_point` at y."""
    power = 1 / delta - 1
    total, base_u, base_uu, power_u = _sums(
        row, cached, classes, largest, unit, delta * tl.exp(-y), power, BLOCK, ONE, COMPUTE
    )
    mean, renyi, residual, step = _point(y, q, r, delta, total, base_u, base_uu, power_u)
    steps = 0
    while (tl.abs(step) > last_step) & (steps < _MOST_STEPS):
        low, high, y = _following(y, step, residual, low, high, steps)
        total, base_u, base_uu, power_u = _sums(
            row, cached, classes, largest, unit, delta * tl.exp(-y), power, BLOCK, ONE, COMPUTE
        )
        mean, renyi, residual, step = _point(y, q, r, delta, total, base_u, base_uu, power_u)
        steps += 1
    return y, tl.where(tl.abs(step) <= last_step, step, 0.0), total, base_u, mean, renyi


@triton.jit
def _solved(
    row, cached, count, classes, largest, q, r, temperature,
    BLOCK: tl.constexpr, ONE: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """A row's unit, scale and total, as in p = (1 + scale x)₊^β/total, its conjugate and R_q."""
    unit = 1 / temperature
    delta = tl.maximum(q - 1, _LEAST_DELTA)
    most = tl.log(tl.full([], classes, tl.float64))  # an argument of 1 is a constant
    low = -tl.maximum(r - 1, 0.0) * most - _MARGIN
    high = tl.maximum(2 - 1 / q - r, 0.0) * most + _MARGIN
    if tl.float64 == COMPUTE:
        y, step, total, base_u, mean, renyi = _root(
            row, cached, count, largest, unit, q, r, delta, high, low, high, q * 0 + _NEAR, BLOCK, ONE, tl.float32
        )
        start = tl.minimum(high, tl.maximum(low, y + step))
    else:
        start = high
    last = _last_step(delta, COMPUTE)
    y, step, total, base_u, mean, renyi = _root(
        row, cached, count, largest, unit, q, r, delta, start, low, high, last, BLOCK, ONE, COMPUTE
    )
    linear = mean / delta * tl.exp(y)
    conjugate = tl.maximum(linear + renyi * _expm1_ratio((1 - r) * renyi) / q, 0.0) * temperature
    # at the end of the last step, by d(w^β)/dy = −β w^(β−1) u
    total = total - step / delta * base_u
    conjugate = tl.where(total > 0, conjugate, float("nan"))
    return unit, delta * tl.exp(-y - step), total, conjugate, renyi


@triton.jit
def _probabilities(z, largest, unit, scale, total, delta, COMPUTE: tl.constexpr):
    x = (z.to(COMPUTE) - largest.to(COMPUTE)) * unit.to(COMPUTE)
    u, base = _weights(x, scale, 1 / delta - 1, COMPUTE)
    return base * (1 + u) / total.to(COMPUTE)


@triton.jit
def _orders_of(row, orders, q, r, temperature):
    """q, r and T₀ of a row: from `orders` [rows, 3], or if that is None, the numbers."""
    if orders is None:
        q, r = tl.full([], q, tl.float64), tl.full([], r, tl.float64)
        temperature = tl.full([], temperature, tl.float64)
    else:
        own = orders + row * 3
        q, r, temperature = tl.load(own), tl.load(own + 1), tl.load(own + 2)
    return q, r, temperature


@triton.jit
def _row(logits, counts, tops, kept, index, room, classes, BLOCK: tl.constexpr):
    """Where the logits to sum over begin, their number, the first block of them, and the largest."""
    row = logits + index * classes
    if counts is None:
        count, largest = classes, _largest(row, classes, BLOCK)
    else:
        count, largest = tl.load(counts + index), tl.load(tops + index)
        if count < classes:
            row = kept + index * room
    return row, count, _loaded(row, 0, count, -float("inf"), BLOCK).to(tl.float32), largest


@triton.jit
def _solve(
    logits, probabilities, conjugates, counts, tops, kept, indices, room, classes,
    orders, q: tl.float64, r: tl.float64, temperature: tl.float64,
    BLOCK: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    index = tl.program_id(0).to(tl.int64)
    q, r, temperature = _orders_of(index, orders, q, r, temperature)
    row, count, cached, largest = _row(logits, counts, tops, kept, index, room, classes, BLOCK)
    unit, scale, total, conjugate, _ = _solved(
        row, cached, count, classes, largest, q, r, temperature, BLOCK, counts is None, COMPUTE
    )
    out, own = probabilities + index * classes, None if indices is None else indices + index * room
    delta = tl.maximum(q - 1, _LEAST_DELTA)
    for start in range(0, count, BLOCK):
        place, inside = _places(own, start, count, classes, BLOCK)
        z = cached if own is None else _loaded(row, start, count, -float("inf"), BLOCK).to(tl.float32)
        p = _probabilities(z, largest, unit, scale, total, delta, COMPUTE)
        tl.store(out + place, p.to(out.dtype.element_ty), mask=inside)
    tl.store(conjugates + index, conjugate.to(conjugates.dtype.element_ty))


@triton.jit
def _renyi_slopes(p, log_p, renyi, delta):
    """The terms of ∂R_q/∂q."""
    t = log_p + renyi
    return -p * t * t * _expm1_ratio_slope(delta * t)


@triton.jit
def _class_loss(
    logits, targets, losses, states, slopes, wrong_row, ignored, counts, tops, kept, room, classes,
    orders, q: tl.float64, r: tl.float64, temperature: tl.float64,
    SLOPES: tl.constexpr, BLOCK: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    index = tl.program_id(0).to(tl.int64)
    target = tl.load(targets + index)
    counted = target != ignored
    is_class = (target >= 0) & (target < classes)
    tl.store(wrong_row, index, mask=counted & (is_class == 0))
    q, r, temperature = _orders_of(index, orders, q, r, temperature)
    row, count, cached, largest = _row(logits, counts, tops, kept, index, room, classes, BLOCK)
    unit, scale, total, conjugate, renyi = _solved(
        row, cached, count, classes, largest, q, r, temperature, BLOCK, counts is None, COMPUTE
    )
    of_target = tl.load(logits + index * classes + tl.where(is_class, target, 0)).to(tl.float64)
    loss = conjugate - (of_target - largest.to(tl.float64))
    loss = tl.where(loss < 0, 0.0, loss)  # rounding can leave −1e-17 at p = y
    tl.store(losses + index, tl.where(counted, loss, 0.0).to(tl.float32))
    tl.store(states + index * 4, largest.to(tl.float64))
    tl.store(states + index * 4 + 1, unit)
    tl.store(states + index * 4 + 2, scale)
    tl.store(states + index * 4 + 3, total)
    if SLOPES:
        delta = tl.maximum(q - 1, _LEAST_DELTA)
        slope = tl.zeros([BLOCK], tl.float32)
        for start in range(0, count, BLOCK):
            z = _loaded(row, start, count, -float("inf"), BLOCK).to(tl.float32)
            p = _probabilities(z, largest, unit, scale, total, delta, tl.float32)
            slope += _renyi_slopes(p, tl.log(tl.maximum(p, 1e-37)), renyi.to(tl.float32), delta.to(tl.float32))
        heat = (1 - r) * renyi
        entropy = renyi * _expm1_ratio(heat)
        by_q = temperature * (tl.exp(heat) * tl.sum(slope, 0) - entropy / q) / q
        by_r = -temperature / q * renyi * renyi * _expm1_ratio_slope(heat)
        tl.store(slopes + index * 3, tl.where(counted, by_q, 0.0).to(tl.float32))
        tl.store(slopes + index * 3 + 1, tl.where(counted, by_r, 0.0).to(tl.float32))
        tl.store(slopes + index * 3 + 2, tl.where(counted, entropy / q, 0.0).to(tl.float32))


@triton.jit
def _class_loss_backward(
    logits, targets, states, grads, grad_logits, classes, ignored, grad_step,
    orders, q: tl.float64, r: tl.float64, temperature: tl.float64, BLOCK: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    index, first = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK * _BLOCKS_OF_PROGRAM
    target = tl.load(targets + index)
    largest, unit = tl.load(states + index * 4), tl.load(states + index * 4 + 1)
    scale, total = tl.load(states + index * 4 + 2), tl.load(states + index * 4 + 3)
    q, r, temperature = _orders_of(index, orders, q, r, temperature)
    delta = tl.maximum(q - 1, _LEAST_DELTA)
    width, grad = 1 / (unit * scale), tl.load(grads + index * grad_step)
    lowest = (-width - width * _MARGIN).to(tl.float32)
    for start in range(first, tl.minimum(first + BLOCK * _BLOCKS_OF_PROGRAM, classes), BLOCK):
        place = start + tl.arange(0, BLOCK)
        z = _loaded(logits + index * classes, start, classes, -float("inf"), BLOCK).to(tl.float32)
        p = tl.zeros([BLOCK], COMPUTE)
        if (tl.max(z - largest.to(tl.float32), 0) >= lowest) | ((total > 0) == 0):  # an undefined row is NaN
            p = _probabilities(z, largest, unit, scale, total, delta, COMPUTE)
        gradient = (p - tl.where(place == target, 1.0, 0.0)) * grad
        gradient = tl.where(target != ignored, gradient, 0.0).to(tl.float32)
        tl.store(grad_logits + index * classes + place, gradient.to(grad_logits.dtype.element_ty), mask=place < classes)


@triton.jit
def _support(row, place, inside, delta, reference, mirrored):
    """p, log p, δṽ/p of a block, 0 off the support."""
    p = tl.load(row + place, mask=inside, other=0.0).to(tl.float32)
    log_p = tl.where(p > 0, tl.log(tl.maximum(p, 1e-37)), reference)
    return p, log_p, -_expm1(-delta * (log_p + mirrored))


@triton.jit
def _map_backward(
    probabilities, grads, grad_logits, grad_parameters, counts, tops, indices, room, classes,
    orders, q: tl.float64, r: tl.float64, temperature: tl.float64,
    PARAMETERS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    index = tl.program_id(0).to(tl.int64)
    own = None if indices is None else indices + index * room
    count = classes if counts is None else tl.load(counts + index)
    row, grad, out = probabilities + index * classes, grads + index * classes, grad_logits + index * classes
    q, r, temperature = _orders_of(index, orders, q, r, temperature)
    delta = tl.maximum(q - 1, _LEAST_DELTA)
    narrow = delta.to(tl.float32)
    largest = _largest(row, classes, BLOCK) if tops is None else tl.load(tops + index)
    reference = tl.log(largest)
    # A constant added to grad changes no result. With the grad of the largest p subtracted, no digits cancel.
    risen, fallen = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    origins = tl.full([BLOCK], -float("inf"), tl.float32)
    for start in range(0, count, BLOCK):
        place, inside = _places(own, start, count, classes, BLOCK)
        p, log_p, _ = _support(row, place, inside, narrow, reference, -reference)
        direction = tl.load(grad + place, mask=inside, other=0.0).to(tl.float32)
        risen += p * _expm1(narrow * (log_p - reference))
        fallen += p * _expm1(-narrow * (log_p - reference))
        origins = tl.maximum(origins, tl.where(p == largest, direction, -float("inf")))
    origin = tl.max(origins, 0)
    renyi = -reference.to(tl.float64) - _log1p(tl.sum(risen, 0).to(tl.float64)) / delta
    mirrored = -reference.to(tl.float64) + _log1p(tl.sum(fallen, 0).to(tl.float64)) / delta
    level, lift = mirrored.to(tl.float32), renyi.to(tl.float32)
    along_sum, escort_sum = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    covariance_sum, weight, along_p = along_sum, along_sum, along_sum
    along_weighted, tilted, shannon, renyi_slope = along_sum, along_sum, along_sum, along_sum
    for start in range(0, count, BLOCK):
        place, inside = _places(own, start, count, classes, BLOCK)
        p, log_p, lost = _support(row, place, inside, narrow, reference, level)
        direction = tl.where(p > 0, tl.load(grad + place, mask=inside, other=0.0).to(tl.float32) - origin, 0.0)
        spread = p * (lost / narrow)
        tilt = _expm1(narrow * (log_p + lift)) / narrow
        along_sum += spread * direction
        escort_sum += p * (1 - lost) * direction
        covariance_sum += spread * tilt
        if PARAMETERS:
            raised = log_p + level
            weighted = p * raised * raised * _expm1_remainder(-narrow * raised)
            weight += weighted
            along_p += p * direction
            along_weighted += weighted * direction
            tilted += weighted * tilt
            shannon -= p * log_p
            renyi_slope += _renyi_slopes(p, log_p, lift, narrow)
    along, escort_mean = tl.sum(along_sum, 0), tl.sum(escort_sum, 0)
    gap = r - q
    stiffness = 1 + gap * q * tl.sum(covariance_sum, 0)
    heat = temperature * tl.exp(-gap * renyi)
    # 1/heat as the product of two factors that float32 holds: for a large r 1/heat overflows; infinity times 0 is NaN.
    factor = tl.minimum(1 / tl.sqrt(heat), 1e30)
    if PARAMETERS:
        response = tl.sum(renyi_slope, 0) + q * tl.sum(tilted, 0)
        heating = (renyi - tl.sum(shannon, 0) - gap * response) / stiffness
        by_q = tl.sum(along_p, 0) * tl.sum(weight, 0) - tl.sum(along_weighted, 0) - heating * along
        tl.store(grad_parameters + index * 3, by_q.to(tl.float32))
        tl.store(grad_parameters + index * 3 + 1, (along * renyi / stiffness).to(tl.float32))
        tl.store(grad_parameters + index * 3 + 2, (-along / temperature / stiffness).to(tl.float32))
    escort_scale = (tl.exp(delta * mirrored) * factor).to(tl.float32)
    spread_scale = (gap * q / stiffness * tl.exp(delta * renyi) * along * factor).to(tl.float32)
    for start in range(0, count, BLOCK):
        place, inside = _places(own, start, count, classes, BLOCK)
        p, log_p, lost = _support(row, place, inside, narrow, reference, level)
        direction = tl.where(p > 0, tl.load(grad + place, mask=inside, other=0.0).to(tl.float32) - origin, 0.0)
        result = escort_scale * (1 - lost) * (direction - escort_mean) - spread_scale * (lost / narrow)
        tl.store(out + place, (p * factor.to(tl.float32) * result).to(out.dtype.element_ty), mask=inside)


def supports(logits: Tensor, orders: Orders) -> bool:
    """Whether Triton computes this. Plain torch is faster for float64 and q > 2, and has the global maximum."""
    q, r, _ = orders
    if logits.dtype == torch.float64 or largest(q) > 2:
        return False
    concave = is_concave(q, r)
    return bool(concave.all()) if isinstance(concave, Tensor) else concave


def solve(logits: Tensor, orders: Orders, wants_conjugate: bool) -> tuple[Tensor, Tensor]:
    logits = logits.contiguous()
    probabilities = _output(logits)
    conjugate = torch.empty(logits.shape[:-1], dtype=torch.float32, device=logits.device)
    rows, classes = _shape(logits)
    with torch.cuda.device_of(logits):
        given = classes, *_orders_for_kernel(orders, logits)
        found = _candidates(logits, given, kept=True, indices=True)
        _solve[(rows,)](logits, probabilities, conjugate, *found, *given, COMPUTE=_compute(logits), **_launch(classes))
    return probabilities, conjugate


def map_backward(probabilities: Tensor, grad: Tensor, orders: Orders, slopes: str) -> tuple[Tensor, Slopes]:
    probabilities, grad = probabilities.contiguous(), grad.to(probabilities.dtype).contiguous()
    by_logits = _output(probabilities)
    wanted = slopes != "none"
    of_rows = torch.empty((*grad.shape[:-1], 3) if wanted else 0, dtype=torch.float32, device=grad.device)
    rows, classes = _shape(probabilities)
    with torch.cuda.device_of(grad):
        given = classes, *_orders_for_kernel(orders, probabilities)
        counts, tops, _, indices, room = _candidates(probabilities, given, kept=False, indices=True)
        _map_backward[(rows,)](
            probabilities, grad, by_logits, of_rows, counts, tops, indices, room, *given,
            PARAMETERS=wanted, **_launch(classes),
        )  # fmt: skip
    return by_logits, any_device.of_kind(of_rows, slopes) if wanted else None


def class_loss(
    logits: Tensor, targets: Tensor, orders: Orders, ignore_index: int, reduction: str, slopes: str, keeps: str
) -> tuple[Tensor, Tensor, None, Slopes, Tensor]:
    logits, targets = logits.contiguous(), targets.contiguous()
    wanted = slopes != "none"
    losses = torch.empty(targets.shape, dtype=torch.float32, device=logits.device)
    states = torch.empty((*targets.shape, 4), dtype=torch.float64, device=logits.device)
    of_rows = torch.empty((*targets.shape, 3) if wanted else 0, dtype=torch.float32, device=logits.device)
    wrong_row = torch.full((1,), -1, device=logits.device)  # whose target is no class, if there is one
    rows, classes = _shape(logits)
    with torch.cuda.device_of(logits):
        given = classes, *_orders_for_kernel(orders, logits)
        counts, tops, kept, _, room = _candidates(logits, given, kept=True, indices=False)
        _class_loss[(rows,)](
            logits, targets, losses, states, of_rows, wrong_row, ignore_index, counts, tops, kept, room, *given,
            SLOPES=wanted, COMPUTE=_compute(logits), **_launch(classes),
        )  # fmt: skip
    loss, divisor = any_device.reduced(losses, targets != ignore_index, reduction)
    if (row := int(wrong_row)) >= 0:  # the host waits for the kernel
        raise label_error(int(targets.flatten()[row]), classes, ignore_index)
    return loss, states, None, any_device.of_kind(of_rows, slopes, divisor) if wanted else None, divisor


def class_loss_backward(
    logits: Tensor,
    targets: Tensor,
    states: Tensor,
    grad: Tensor,
    orders: Orders,
    ignore_index: int,
    divisor: float | Tensor,
) -> Tensor:
    logits, targets, states, grad = (one.contiguous() for one in (logits, targets, states, grad / divisor))
    by_logits = torch.empty_like(logits)
    rows, classes = _shape(logits)
    block = min(triton.next_power_of_2(classes), _GRADIENT)
    with torch.cuda.device_of(logits):
        _class_loss_backward[(rows, math.ceil(classes / (block * _BLOCKS_OF_PROGRAM.value)))](
            logits, targets, states, grad, by_logits, classes, ignore_index, int(grad.dim() > 0),
            *_orders_for_kernel(orders, logits), block, _compute(logits), num_warps=1,
        )  # fmt: skip
    return by_logits


def _shape(matrix: Tensor) -> tuple[int, int]:
    return matrix.numel() // matrix.shape[-1], matrix.shape[-1]


def _compute(logits: Tensor) -> tl.dtype:
    return tl.float64 if logits.dtype == torch.float32 else tl.float32


def _launch(classes: int) -> dict[str, int]:
    block = triton.next_power_of_2(classes) if classes <= _SHORT else _BLOCK
    return {"BLOCK": block, "num_warps": warps(block)}


def _room(classes: int) -> int:
    """For how many candidates of a row there is room; 0 for a short row, which needs no search."""
    return 0 if classes <= _SHORT else min(math.ceil(classes / 4), _MOST_CANDIDATES)


def _candidates(
    values: Tensor, given: tuple[Any, ...], *, kept: bool, indices: bool
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None, int]:
    """Of each long row the number of candidates, its largest value, their values and indices; the room for them.

    `given` are the number of classes and the orders. Logits are kept; probabilities are not.
    """
    rows, classes = _shape(values)
    if not (room := _room(classes)):
        return None, None, None, None, 0
    counts = values.new_empty(rows, dtype=torch.int32)
    tops = values.new_empty(rows, dtype=torch.float32)
    values_of_candidates = values.new_empty(rows, room) if kept else None
    places = values.new_empty(rows, room, dtype=torch.int32) if indices else None
    _find_candidates[(rows,)](
        values, counts, tops, values_of_candidates, places, room, *given, BLOCK=_SEARCHED, num_warps=1
    )
    return counts, tops, values_of_candidates, places, room


def _output(values: Tensor) -> Tensor:
    """The tensor for a map or its gradient: zeros for long rows, of which kernels may write the candidates alone."""
    return torch.zeros_like(values) if _room(values.shape[-1]) else torch.empty_like(values)


def warps(block: int) -> int:
    """The number of warps of a program that holds a block of classes in registers."""
    return max(1, block // _CLASSES_OF_WARP)


def _orders_for_kernel(orders: Orders, values: Tensor) -> tuple[Tensor | float | None, ...]:
    """The orders as kernels take them: one tensor [rows, 3], or None and three numbers, which need no launch."""
    if not any(isinstance(order, Tensor) for order in orders):
        return None, *orders
    return torch.cat(columns(orders, values.reshape(-1, values.shape[-1])), -1), 1.0, 1.0, 1.0
