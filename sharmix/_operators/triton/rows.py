"""A program solves a whole row: from registers, where its block holds all classes, or block by block from memory.

1. Load the row, and measure its logits from the largest.
2. Solve the equation.
3. Write p, or loss and gradient. The gradient may overwrite the logits.
"""

import triton
import triton.language as tl

from sharmix._operators.triton import equation, outputs
from sharmix._operators.triton.elementary import largest_of, sum_of_four


@triton.jit(do_not_specialize=["rows"])
def map_of_rows(
    logits, out, orders, left, rows, classes,
    BETA: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Writes `MapOutputs` but the support. `left` [rows] is 0 for rows that are done; None: none is."""
    for number in range(tl.program_id(0), rows, tl.num_programs(0)):
        index = tl.zeros([], tl.int64) + number
        if is_to_do(left, orders, index):
            start = index * classes
            largest, x, solution, scalars = _solved(logits + start, orders, index, classes, BETA, BLOCK, WHOLE)
            _, _, temperature, _, power = scalars
            total = tl.where(outputs.is_defined(largest), solution.total, float("nan"))
            place, top = tl.arange(0, BLOCK), tl.zeros([BLOCK], tl.int32)
            if WHOLE:
                _write_p(out.probabilities + start, place, x, solution.scale, total, power, classes, BETA)
                top = tl.where(x == 0, place, 0)
            else:
                for first in range(0, classes, BLOCK):
                    x = (loaded(logits + start, first + place, classes) - largest) / temperature
                    _write_p(out.probabilities + start, first + place, x, solution.scale, total, power, classes, BETA)
                    top = tl.maximum(top, tl.where(x == 0, first + place, 0))
            outputs.write_map(out, index, solution, largest, tl.max(top, 0))


@triton.jit(do_not_specialize=["rows"])
def loss_of_rows(
    logits, labels, out, orders, left, rows, classes,
    BETA: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Writes `LossOutputs`. `left` is as for `map_of_rows`."""
    for number in range(tl.program_id(0), rows, tl.num_programs(0)):
        index = tl.zeros([], tl.int64) + number
        if is_to_do(left, orders, index):
            start = index * classes
            target, counted, is_class, factor = outputs.target_of(labels, index, classes)
            place = tl.arange(0, BLOCK)
            if counted:
                own = tl.load(logits + start + tl.where(is_class, target, 0)).to(tl.float32)
                largest, x, solution, scalars = _solved(logits + start, orders, index, classes, BETA, BLOCK, WHOLE)
                q, r, temperature, delta, power = scalars
                total = tl.where(outputs.is_defined(largest) & is_class, solution.total, float("nan"))
                slope = tl.zeros([BLOCK], tl.float32)
                if WHOLE:
                    p = equation.probabilities(x, solution.scale, total, power, BETA)
                    if out.gradients is not None:
                        outputs.write_error(out.gradients, start, place, p, target, factor, classes)
                    if out.slopes is not None:
                        slope = equation.renyi_slopes(p, solution.renyi, delta)
                elif (out.gradients is not None) or (out.slopes is not None):
                    for first in range(0, classes, BLOCK):
                        x = (loaded(logits + start, first + place, classes) - largest) / temperature
                        p = equation.probabilities(x, solution.scale, total, power, BETA)
                        if out.gradients is not None:
                            outputs.write_error(out.gradients, start, first + place, p, target, factor, classes)
                        if out.slopes is not None:
                            slope += equation.renyi_slopes(p, solution.renyi, delta)
                outputs.write_loss(out, index, solution, largest, own, is_class, tl.sum(slope, 0), q, r, temperature)
            else:
                outputs.write_nothing(out, index)
                if out.gradients is not None:
                    zeros = tl.zeros([BLOCK], out.gradients.dtype.element_ty)
                    for first in range(0, classes, BLOCK):
                        tl.store(out.gradients + start + first + place, zeros, mask=first + place < classes)


@triton.jit
def loaded(row, place, classes):
    return tl.load(row + place, mask=place < classes, other=-float("inf")).to(tl.float32)


@triton.jit
def is_to_do(left, orders, index):
    to_do = equation.is_smooth(orders, index)
    if left is not None:
        to_do = to_do & (tl.load(left + index) != 0)
    return to_do


@triton.jit
def _solved(row, orders, index, classes, BETA: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr):
    """The row's largest logit, its first block measured from that, its solution, and its orders."""
    q, r, temperature, delta, power = equation.load_orders(orders, index, classes, tl.float32)
    z = loaded(row, tl.arange(0, BLOCK), classes)
    if WHOLE:
        largest = largest_of(z)
        x = (z - largest) / temperature
        solution, _ = equation.solve((x,), q, r, temperature, delta, power, classes, _sums_of_registers, BETA)
    else:
        for first in range(BLOCK, classes, BLOCK):
            other = loaded(row, first + tl.arange(0, BLOCK), classes)
            z = tl.where((other > z) | (other != other), other, z)
        largest = largest_of(z)
        x = (z - largest) / temperature
        solution, _ = equation.solve(
            (row, largest, temperature, classes, tl.arange(0, BLOCK)), q, r, temperature, delta, power, classes,
            _sums_of_blocks, BETA,
        )  # fmt: skip
    return largest, x, solution, (q, r, temperature, delta, power)


@triton.jit
def _sums_of_registers(data, scale, power, steps, BETA: tl.constexpr):
    total, base_u, base_uu, power_u = equation.terms(data[0], scale, power, BETA)
    return sum_of_four(total, base_u, base_uu, power_u)


@triton.jit
def _sums_of_blocks(data, scale, power, steps, BETA: tl.constexpr):
    row, largest, temperature, classes, place = data
    total = place * 0.0
    base_u, base_uu, power_u = total, total, total
    for first in range(0, classes, place.shape[0]):
        x = (loaded(row, first + place, classes) - largest) / temperature
        one, by_u, by_uu, higher = equation.terms(x, scale, power, BETA)
        total += one
        base_u += by_u
        base_uu += by_uu
        power_u += higher
    return sum_of_four(total, base_u, base_uu, power_u)


@triton.jit
def _write_p(row, place, x, scale, total, power, classes, BETA: tl.constexpr):
    p = equation.probabilities(x, scale, total, power, BETA)
    tl.store(row + place, p.to(row.dtype.element_ty), mask=place < classes)
