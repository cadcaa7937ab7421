"""Several programs solve a long row together: each holds a span of its classes in registers.

1. Load the span; exchange the largest logits.
2. Solve the equation, as every program of the row does. Each sum is exchanged through memory.
3. Write p, or loss and gradient, of the span.

To exchange, a program stores its own numbers, and waits at the row's counter until all programs have come. So all must
run at the same time: the launch is cooperative, and has no more programs than the GPU has multiprocessors.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from sharmix._operators.triton import equation, outputs
from sharmix._operators.triton.elementary import largest_of, sum_of_four
from sharmix._operators.triton.rows import is_to_do, loaded

_ROUNDS = tl.constexpr(equation.MOST_STEPS.value + 2)  # of exchanges: the largest, a sum for each step, the slopes
NUMBERS_OF_PROGRAM = _ROUNDS.value * 4 + 1  # float32 for each program of a row: what it exchanges, and the counter


class Exchange(NamedTuple):
    """Where the programs of a row leave numbers and count their arrivals, which of them this is, and who they are."""

    numbers: Any
    arrivals: Any
    program: Any
    programs: Any


@triton.jit
def map_of_rows_together(
    logits, out, orders, numbers, classes, BETA: tl.constexpr, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr
):
    """Writes `MapOutputs` but the support. `numbers` [rows, `NUMBERS_OF_PROGRAM`, PROGRAMS] are 0."""
    index, exchange = _exchange_of(numbers, PROGRAMS)
    if is_to_do(None, orders, index):
        row, place = index * classes, exchange.program * BLOCK + tl.arange(0, BLOCK)
        x, largest, top, solution, scalars = _solved(logits + row, place, orders, index, classes, exchange, BETA)
        _, _, _, _, power = scalars
        total = tl.where(outputs.is_defined(largest), solution.total, float("nan"))
        p = equation.probabilities(x, solution.scale, total, power, BETA)
        tl.store(out.probabilities + row + place, p.to(out.probabilities.dtype.element_ty), mask=place < classes)
        if exchange.program == 0:
            outputs.write_map(out, index, solution, largest, top)


@triton.jit
def loss_of_rows_together(
    logits, labels, out, orders, numbers, classes, BETA: tl.constexpr, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr
):
    """Writes `LossOutputs`. `numbers` are as for `map_of_rows_together`."""
    index, exchange = _exchange_of(numbers, PROGRAMS)
    if is_to_do(None, orders, index):
        row, place = index * classes, exchange.program * BLOCK + tl.arange(0, BLOCK)
        target, counted, is_class, factor = outputs.target_of(labels, index, classes)
        if counted:
            own = tl.load(logits + row + tl.where(is_class, target, 0)).to(tl.float32)
            x, largest, _, solution, scalars = _solved(logits + row, place, orders, index, classes, exchange, BETA)
            q, r, temperature, delta, power = scalars
            total = tl.where(outputs.is_defined(largest) & is_class, solution.total, float("nan"))
            p = equation.probabilities(x, solution.scale, total, power, BETA)
            if out.gradients is not None:
                outputs.write_error(out.gradients, row, place, p, target, factor, classes)
            slope = tl.zeros([], tl.float32)
            if out.slopes is not None:
                slope += tl.sum(equation.renyi_slopes(p, solution.renyi, delta), 0)
                slope, _, _, _ = _exchanged_sums(exchange, _ROUNDS - 1, slope, slope, slope, slope)
            if exchange.program == 0:
                outputs.write_loss(out, index, solution, largest, own, is_class, slope, q, r, temperature)
        else:
            if out.gradients is not None:
                zeros = tl.zeros([BLOCK], out.gradients.dtype.element_ty)
                tl.store(out.gradients + row + place, zeros, mask=place < classes)
            if exchange.program == 0:
                outputs.write_nothing(out, index)


@triton.jit
def _exchange_of(numbers, PROGRAMS: tl.constexpr):
    index, program = (tl.program_id(0) // PROGRAMS).to(tl.int64), tl.program_id(0) % PROGRAMS
    own = numbers + index * ((_ROUNDS * 4 + 1) * PROGRAMS)
    arrivals = (own + _ROUNDS * 4 * PROGRAMS).to(tl.pointer_type(tl.int32), bitcast=True)
    return index, Exchange(own, arrivals, program, tl.arange(0, PROGRAMS))


@triton.jit
def _solved(row, place, orders, index, classes, exchange, BETA: tl.constexpr):
    """The span's x, the row's largest logit and its place, its solution, and its orders."""
    q, r, temperature, delta, power = equation.load_orders(orders, index, classes, tl.float32)
    z = loaded(row, place, classes)
    own = largest_of(z)
    slots = exchange.numbers + exchange.programs
    tl.store(exchange.numbers + exchange.program, own)
    where = tl.max(tl.where(z == own, place, 0), 0)  # a place below 2²⁴ is exact in float32
    tl.store(exchange.numbers + exchange.programs.shape[0] + exchange.program, where.to(tl.float32))
    _meet(exchange)
    tops = tl.load(slots, volatile=True)
    largest = largest_of(tops)
    wheres = tl.load(slots + exchange.programs.shape[0], volatile=True)
    top = tl.max(tl.where(tops == largest, wheres, 0.0), 0).to(tl.int32)
    x = (z - largest) / temperature
    solution, _ = equation.solve((x, exchange), q, r, temperature, delta, power, classes, _sums_together, BETA)
    return x, largest, top, solution, (q, r, temperature, delta, power)


@triton.jit
def _sums_together(data, scale, power, steps, BETA: tl.constexpr):
    x, exchange = data
    a, b, c, d = equation.terms(x, scale, power, BETA)
    a, b, c, d = sum_of_four(a, b, c, d)
    a, b, c, d = _exchanged_sums(exchange, steps + 1, a, b, c, d)
    return a, b, c, d


@triton.jit
def _exchanged_sums(exchange, round_, a, b, c, d):
    count = exchange.programs.shape[0]
    own = exchange.numbers + round_ * 4 * count
    tl.store(own + exchange.program, a)
    tl.store(own + count + exchange.program, b)
    tl.store(own + 2 * count + exchange.program, c)
    tl.store(own + 3 * count + exchange.program, d)
    _meet(exchange)
    slots = own + exchange.programs
    a, b = tl.load(slots, volatile=True), tl.load(slots + count, volatile=True)
    c, d = tl.load(slots + 2 * count, volatile=True), tl.load(slots + 3 * count, volatile=True)
    return sum_of_four(a, b, c, d)


@triton.jit
def _meet(exchange):
    """Wait until every program of the row has come as often as this one."""
    tl.debug_barrier()
    arrived = tl.atomic_add(exchange.arrivals, 1, sem="acq_rel", scope="gpu") + 1
    count = exchange.programs.shape[0]
    due = (arrived + count - 1) // count * count  # of this round: nobody begins the next one before all have come
    while tl.atomic_add(exchange.arrivals, 0, sem="acquire", scope="gpu") < due:
        pass
    tl.debug_barrier()
