"""The nonzero errors of an output layer: of each row a list of (class, p − y), from logits that no gradient overwrites.

1. `lists_of_lanes` reads each row once, and lists its support in the order of the lanes, and then the target.
2. Rows that it cannot prove, or whose list is full, are left to `rows.loss_of_rows`, which overwrites their logits by
   the gradient. From that `lists_of_rows` makes the list, if it fits.
3. `find_dense` finds the rows that have no list: `products` multiplies their gradients as they are.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from sharmix._operators.triton import equation, outputs
from sharmix._operators.triton.lanes import ranks_of, solved, support_of


class Lists(NamedTuple):
    """ROOM classes and errors of each row, [rows, ROOM], and how many errors there are; with more than ROOM, no list.

    The entries behind the last hold the number of classes in place of a class: sorted by class, they come last.
    """

    classes: Any
    errors: Any
    counts: Any


class Dense(NamedTuple):
    """The rows of a chunk that have no list; their number in the chunks before, and with this chunk."""

    rows: Any
    numbers: Any


@triton.jit
def lists_of_lanes(
    logits, labels, out, lists, orders, left, smoothing, classes,
    BETA: tl.constexpr, BLOCK: tl.constexpr, LOW: tl.constexpr, ROOM: tl.constexpr,
):  # fmt: skip
    """Writes `Lists`, losses and slopes of `LossOutputs`, and `left`. The target has the error p − 1 + smoothing."""
    index = tl.program_id(0).to(tl.int64)
    target, counted, is_class, _ = outputs.target_of(labels, index, classes)
    count, is_left = tl.zeros([], tl.int32), tl.zeros([], tl.int32)
    if counted:
        row = logits + index * classes
        own = tl.load(row + tl.where(is_class, target, 0)).to(tl.float32)
        lanes, solution, scalars = solved(row, None, orders, index, classes, BETA, BLOCK, LOW)
        q, r, temperature, delta, power = scalars
        inside = support_of(lanes, solution, target)
        ranks, found = ranks_of(inside)
        if (lanes.is_proved & is_class) & (found < ROOM):
            slope = tl.zeros([BLOCK], tl.float32)
            for kept in tl.static_range(3):
                p = equation.probabilities(lanes.x[kept], solution.scale, solution.total, power, BETA)
                tl.store(lists.classes + index * ROOM + ranks[kept], lanes.places[kept], mask=inside[kept])
                tl.store(lists.errors + index * ROOM + ranks[kept], p, mask=inside[kept])
                if out.slopes is not None:
                    slope += equation.renyi_slopes(p, solution.renyi, delta)
            x = (own - lanes.largest) / temperature
            p = equation.probabilities(x, solution.scale, solution.total, power, BETA)
            tl.store(lists.classes + index * ROOM + found, target)
            tl.store(lists.errors + index * ROOM + found, p - 1 + smoothing)
            outputs.write_loss(out, index, solution, lanes.largest, own, is_class, tl.sum(slope, 0), q, r, temperature)
            count += found + 1
        else:
            is_left += 1
    else:
        outputs.write_nothing(out, index)
    tl.store(left + index, is_left)
    _close(lists, index, count, classes, ROOM)


@triton.jit
def lists_of_rows(gradients, lists, left, rows, classes, BLOCK: tl.constexpr, ROOM: tl.constexpr):
    """Writes `Lists` of the rows that are left."""
    for number in range(tl.program_id(0), rows, tl.num_programs(0)):
        if tl.load(left + number) != 0:
            index = tl.zeros([], tl.int64) + number
            count = tl.zeros([], tl.int32)
            for start in range(0, classes, BLOCK):
                place = start + tl.arange(0, BLOCK)
                error = tl.load(gradients + index * classes + place, mask=place < classes, other=0.0).to(tl.float32)
                is_error = (error != 0).to(tl.int32)  # also a NaN
                rank = count + tl.cumsum(is_error, 0) - 1
                fits = (is_error != 0) & (rank < ROOM)
                tl.store(lists.classes + index * ROOM + rank, place, mask=fits)
                tl.store(lists.errors + index * ROOM + rank, error, mask=fits)
                count += tl.sum(is_error, 0)
            tl.debug_barrier()  # `_close` may write over the entries of a list that does not fit
            _close(lists, index, count, classes, ROOM)


@triton.jit
def _close(lists, index, count, classes, ROOM: tl.constexpr):
    """Write the number of errors, and that of classes behind the last entry: everywhere, if there is no list."""
    entry = tl.arange(0, ROOM)
    unused = entry >= tl.where(count > ROOM, 0, count)
    tl.store(lists.classes + index * ROOM + entry, tl.zeros([ROOM], tl.int32) + classes, mask=unused)
    tl.store(lists.counts + index, count)


@triton.jit
def find_dense(counts, dense, rows, BLOCK: tl.constexpr, ROOM: tl.constexpr):
    """Writes `Dense`, in one program."""
    before = tl.load(dense.numbers + 1)
    found = tl.zeros([], tl.int32)
    for start in range(0, rows, BLOCK):
        place = start + tl.arange(0, BLOCK)
        is_dense = (tl.load(counts + place, mask=place < rows, other=0) > ROOM).to(tl.int32)
        tl.store(dense.rows + found + tl.cumsum(is_dense, 0) - 1, place, mask=is_dense != 0)
        found += tl.sum(is_dense, 0)
    tl.debug_barrier()  # all threads have read the number
    tl.store(dense.numbers, before)
    tl.store(dense.numbers + 1, before + found)
