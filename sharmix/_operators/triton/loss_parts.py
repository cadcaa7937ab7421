"""The launches around the kernels of a loss: the divisor of its mean, the sums over rows, and the backward pass."""

import triton
import triton.language as tl

from sharmix._operators.triton import equation, outputs
from sharmix._operators.triton.rows import loaded


@triton.jit(do_not_specialize=["rows"])
def count_rows(targets, counted, divisor, rows, ignored, BLOCK: tl.constexpr):
    """Writes the number of rows that count, and the divisor of the gradient: that number, or 1 if it is 0."""
    count = tl.zeros([BLOCK], tl.int32)
    for first in range(0, rows, BLOCK):
        place = first + tl.arange(0, BLOCK)
        target = tl.load(targets + place, mask=place < rows, other=ignored)
        count += (target != ignored).to(tl.int32)
    total = tl.sum(count, 0).to(counted.dtype.element_ty)
    tl.store(counted, total)
    tl.store(divisor, tl.maximum(total, 1))


@triton.jit(do_not_specialize=["rows"])
def sum_rows(losses, slopes, counted, divisor, loss, sums, rows, BLOCK: tl.constexpr):
    """Writes the sum of the losses, and those of the slopes by q, r and T₀, or where `counted` is there, the means.

    One program adds in a fixed order, so that the same rows always give the same bits.
    """
    zeros = tl.zeros([BLOCK], losses.dtype.element_ty)
    total, by_q, by_r, by_temperature = zeros, zeros, zeros, zeros
    for first in range(0, rows, BLOCK):
        place = first + tl.arange(0, BLOCK)
        inside = place < rows
        total += tl.load(losses + place, mask=inside, other=0.0)
        if slopes is not None:
            of_row = slopes + place.to(tl.int64) * 3
            by_q += tl.load(of_row, mask=inside, other=0.0)
            by_r += tl.load(of_row + 1, mask=inside, other=0.0)
            by_temperature += tl.load(of_row + 2, mask=inside, other=0.0)
    of_loss, of_slopes = 1.0, 1.0
    if counted is not None:
        of_loss, of_slopes = tl.load(counted), tl.load(divisor)
    tl.store(loss, tl.sum(total, 0) / of_loss)  # the mean over no rows is NaN, as in torch
    if slopes is not None:
        tl.store(sums, tl.sum(by_q, 0) / of_slopes)
        tl.store(sums + 1, tl.sum(by_r, 0) / of_slopes)
        tl.store(sums + 2, tl.sum(by_temperature, 0) / of_slopes)


@triton.jit
def scale_unless_one(gradients, factor, count, BLOCK: tl.constexpr):
    """Multiplies the kept gradients by a number on the device. Where that is 1, as usual, it touches nothing else."""
    factor = tl.load(factor)
    if factor != 1:
        place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        gradient = tl.load(gradients + place, mask=place < count, other=0.0)
        tl.store(gradients + place, (gradient * factor).to(gradients.dtype.element_ty), mask=place < count)


@triton.jit
def loss_backward(logits, labels, states, by_logits, orders, classes, BETA: tl.constexpr, BLOCK: tl.constexpr):
    """Writes the gradient of the smooth rows from their states."""
    index, place = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    if equation.is_smooth(orders, index):
        row = index * classes
        target, counted, _, factor = outputs.target_of(labels, index, classes)
        _, _, _, _, power = equation.load_orders(orders, index, classes, tl.float32)
        state = states + index * 4
        largest = tl.load(state).to(tl.float32)
        temperature = tl.load(state + 1).to(tl.float32)
        scale, total = tl.load(state + 2).to(tl.float32), tl.load(state + 3).to(tl.float32)
        x = (loaded(logits + row, place, classes) - largest) / temperature
        p = equation.probabilities(x, scale, total, power, BETA)
        error = tl.where(counted, (p - tl.where(place == target, 1.0, 0.0)) * factor, 0.0)
        outputs.write(by_logits + row + place, error, place < classes)
