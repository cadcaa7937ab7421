"""A program reads a sparse row once: each of its lanes keeps the three largest logits that it sees.

1. Lane i reads the logits i, BLOCK + i, …, and writes zeros beside. It keeps three as integers that order like floats,
   whose low bits say which block each came from, and the largest of those that it dropped.
2. Solve the equation over what the lanes kept.
3. Prove it: if the largest dropped logit has the weight 0 at the root, then the sums were those of the whole row, and
   the root, the only one in the concave region, is right. Else leave the row to `rows`: left[row] = 1.
4. Write p, or loss and gradient, at the places of the support.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from sharmix._operators.triton import equation, outputs
from sharmix._operators.triton.elementary import sum_of_four

_MINUS_INFINITY = tl.constexpr(-2139095041)  # the ordered integer of −∞
_NAN = tl.constexpr(0x7FFFFFFF)  # the largest integer stands for a NaN


class Lanes(NamedTuple):
    """What the lanes kept: places, logits x from the largest in units of T₀; the largest logit, and the proof."""

    places: Any
    x: Any
    largest: Any
    is_proved: Any


@triton.jit
def map_of_lanes(
    logits, out, orders, left, classes,
    BETA: tl.constexpr, BLOCK: tl.constexpr, LOW: tl.constexpr, ROOM: tl.constexpr,
):  # fmt: skip
    """Writes `MapOutputs` and `left`; there is room for ROOM places of a row's support."""
    index = tl.program_id(0).to(tl.int64)
    start = index * classes
    p = out.probabilities + start
    lanes, solution, scalars = solved(logits + start, p, orders, index, classes, BETA, BLOCK, LOW)
    _, _, _, _, power = scalars
    tl.store(left + index, tl.where(lanes.is_proved, 0, 1))
    count = tl.full([], -1, tl.int32)
    if lanes.is_proved:
        tl.debug_barrier()  # the zeros come first
        top = tl.zeros([BLOCK], tl.int32)
        for kept in tl.static_range(3):
            x, place = lanes.x[kept], lanes.places[kept]
            share = equation.probabilities(x, solution.scale, solution.total, power, BETA)
            tl.store(p + place, share.to(p.dtype.element_ty), mask=x * solution.scale > -1)
            top = tl.maximum(top, tl.where(x == 0, place, 0))
        outputs.write_map(out, index, solution, lanes.largest, tl.max(top, 0))
        if out.support is not None:
            inside = support_of(lanes, solution, -1)
            ranks, found = ranks_of(inside)
            for kept in tl.static_range(3):
                to = out.support + index * ROOM + ranks[kept]
                tl.store(to, lanes.places[kept], mask=inside[kept] & (ranks[kept] < ROOM))
            count = tl.where(found <= ROOM, found, -1)
    if out.support is not None:
        tl.store(out.counts + index, count)


@triton.jit
def loss_of_lanes(
    logits, labels, out, orders, left, classes,
    BETA: tl.constexpr, BLOCK: tl.constexpr, LOW: tl.constexpr,
):  # fmt: skip
    """Writes `LossOutputs` and `left`. The gradient may not overwrite the logits, which are read twice."""
    index = tl.program_id(0).to(tl.int64)
    start = index * classes
    target, counted, is_class, factor = outputs.target_of(labels, index, classes)
    is_left = tl.zeros([], tl.int32)
    if counted:
        own = tl.load(logits + start + tl.where(is_class, target, 0)).to(tl.float32)
        zeros = None if out.gradients is None else out.gradients + start
        lanes, solution, scalars = solved(logits + start, zeros, orders, index, classes, BETA, BLOCK, LOW)
        q, r, temperature, delta, power = scalars
        if lanes.is_proved & is_class:
            tl.debug_barrier()  # the zeros come first
            slope = tl.zeros([BLOCK], tl.float32)
            for kept in tl.static_range(3):
                x, place = lanes.x[kept], lanes.places[kept]
                p = equation.probabilities(x, solution.scale, solution.total, power, BETA)
                if out.gradients is not None:
                    outputs.write(out.gradients + start + place, p * factor, (p > 0) & (place != target))
                if out.slopes is not None:
                    slope += equation.renyi_slopes(p, solution.renyi, delta)
            if out.gradients is not None:
                x = (own - lanes.largest) / temperature
                p = equation.probabilities(x, solution.scale, solution.total, power, BETA)
                outputs.write(out.gradients + start + target, (p - 1) * factor, counted)
            outputs.write_loss(out, index, solution, lanes.largest, own, is_class, tl.sum(slope, 0), q, r, temperature)
        else:
            is_left += 1
    else:
        outputs.write_nothing(out, index)
        if out.gradients is not None:
            for first in range(0, classes, BLOCK):
                place = first + tl.arange(0, BLOCK)
                outputs.write(out.gradients + start + place, tl.zeros([BLOCK], tl.float32), place < classes)
    tl.store(left + index, is_left)


@triton.jit
def solved(
    row, zeros, orders, index, classes,
    BETA: tl.constexpr, BLOCK: tl.constexpr, LOW: tl.constexpr,
):  # fmt: skip
    """Steps 1 to 3: the `Lanes` of a row, the `Solution` over them, and the row's orders."""
    q, r, temperature, delta, power = equation.load_orders(orders, index, classes, tl.float32)
    keys, dropped = _three_largest(row, zeros, classes, BLOCK, LOW)
    first, second, third = keys
    reach = (1 / delta) * (1 + 2 * equation.MARGIN) * temperature
    bound = _value_of(tl.max(first, 0) & ~LOW) - reach
    place1, z1 = _logits_of(row, first, bound, classes, BLOCK, LOW)
    place2, z2 = _logits_of(row, second, bound, classes, BLOCK, LOW)
    place3, z3 = _logits_of(row, third, bound, classes, BLOCK, LOW)
    largest = tl.where(tl.max(first, 0) == _NAN, float("nan"), tl.max(z1, 0))
    x = ((z1 - largest) / temperature, (z2 - largest) / temperature, (z3 - largest) / temperature)
    solution, last_scale = equation.solve(x, q, r, temperature, delta, power, classes, _sums_of_lanes, BETA)
    beyond = (_value_of(tl.max(dropped, 0) | LOW) - largest) / temperature
    is_proved = (beyond * last_scale <= -1) & (beyond * solution.scale <= -1)
    is_proved = (is_proved & outputs.is_defined(largest)) & equation.is_smooth(orders, index)
    return Lanes((place1, place2, place3), x, largest, is_proved), solution, (q, r, temperature, delta, power)


@triton.jit
def support_of(lanes, solution, target):
    """Which of the kept logits have a probability above 0, and are not the target's."""
    return (
        (lanes.x[0] * solution.scale > -1) & (lanes.places[0] != target),
        (lanes.x[1] * solution.scale > -1) & (lanes.places[1] != target),
        (lanes.x[2] * solution.scale > -1) & (lanes.places[2] != target),
    )


@triton.jit
def ranks_of(inside):
    """Where the entries of three masks over the lanes go in one list, lane by lane, and their number, by one scan."""
    first, second, third = inside[0].to(tl.int32), inside[1].to(tl.int32), inside[2].to(tl.int32)
    each = first + second + third
    before = tl.cumsum(each, 0) - each
    return (before, before + first, before + first + second), tl.sum(each, 0)


@triton.jit
def _three_largest(row, zeros, classes, BLOCK: tl.constexpr, LOW: tl.constexpr):
    """Each lane's three largest keys, and the largest key that it dropped. The next block is loaded ahead."""
    lane = tl.arange(0, BLOCK)
    first = tl.full([BLOCK], _MINUS_INFINITY, tl.int32)
    second, third, dropped = first, first, first
    z = tl.load(row + lane, mask=lane < classes, other=-float("inf"), eviction_policy="evict_first").to(tl.float32)
    for start in range(0, classes, BLOCK):
        place, after = start + lane, start + BLOCK + lane
        later = tl.load(
            row + after, mask=after < classes, other=-float("inf"), eviction_policy="evict_first"
        ).to(tl.float32)  # fmt: skip
        key = tl.where(z == z, (_ordered(z) & ~LOW) | (start // BLOCK), _NAN)
        first, key = tl.maximum(first, key), tl.minimum(first, key)
        second, key = tl.maximum(second, key), tl.minimum(second, key)
        third, key = tl.maximum(third, key), tl.minimum(third, key)
        dropped = tl.maximum(dropped, key)
        if zeros is not None:
            tl.store(zeros + place, tl.zeros([BLOCK], zeros.dtype.element_ty), mask=place < classes)
        z = later
    return (first, second, third), dropped


@triton.jit
def _ordered(z):
    """An integer that rises with z."""
    bits = z.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _value_of(key):
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def _logits_of(row, key, bound, classes, BLOCK: tl.constexpr, LOW: tl.constexpr):
    """The places and logits of keys; −∞ below the bound. Half precision is whole in the key, float32 is read again."""
    place, most = (key & LOW) * BLOCK + tl.arange(0, BLOCK), _value_of(key | LOW)
    near = (most >= bound) & (place < classes)
    if row.dtype.element_ty == tl.float32:
        z = tl.load(row + place, mask=near, other=-float("inf"))
    else:
        z = tl.where(near, _value_of(tl.where(key < 0, key | LOW, key & ~LOW)), -float("inf"))
    return place, z


@triton.jit
def _sums_of_lanes(x, scale, power, steps, BETA: tl.constexpr):
    a, b, c, d = equation.terms(x[0], scale, power, BETA)
    for kept in tl.static_range(1, 3):
        e, f, g, h = equation.terms(x[kept], scale, power, BETA)
        a, b, c, d = a + e, b + f, c + g, d + h
    return sum_of_four(a, b, c, d)
