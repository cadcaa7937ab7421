"""The launches around the kernels of a loss: the divisor of its mean, the sums over rows, and the backward pass."""

import triton
import triton.language as tl

from sharmix._operators.triton import equation, outputs
from sharmix._operators.triton.rows import loaded


@triton.jit(do_not_specialize=["rows"])
def count_rows(targets, counts, rows, ignored, BLOCK: tl.constexpr):
    """Writes the number of rows that count, and the divisor of the gradient: that number, or 1 if it is 0."""
    count = tl.zeros([BLOCK], tl.int32)
    for first in range(0, rows, BLOCK):
        place = first + tl.arange(0, BLOCK)
        target = tl.load(targets + place, mask=place < rows, other=ignored)
        count += (target != ignored).to(tl.int32)
    total = tl.sum(count, 0).to(counts.dtype.element_ty)
    tl.store(counts, total)
    tl.store(counts + 1, tl.maximum(total, 1))


@triton.jit(do_not_specialize=["rows"])
def sum_rows(losses, slopes, counts, sums, rows, BLOCK: tl.constexpr):
    """Writes the sum of the losses, and those of the slopes by q, r and T₀; divided by `counts`, if these are there.

    One program adds in a fixed order, so that the same rows always give the same bits.
    """
    TYPE: tl.constexpr = losses.dtype.element_ty
    loss, by_q, by_r, by_temperature = (
        tl.zeros([BLOCK], TYPE), tl.zeros([BLOCK], TYPE), tl.zeros([BLOCK], TYPE), tl.zeros([BLOCK], TYPE),
    )  # fmt: skip
    for first in range(0, rows, BLOCK):
        place = first + tl.arange(0, BLOCK)
        loss += tl.load(losses + place, mask=place < rows, other=0.0)
        if slopes is not None:
            by_q += tl.load(slopes + place * 3, mask=place < rows, other=0.0)
            by_r += tl.load(slopes + place * 3 + 1, mask=place < rows, other=0.0)
            by_temperature += tl.load(slopes + place * 3 + 2, mask=place < rows, other=0.0)
    count, divisor = 1.0, 1.0
    if counts is not None:
        count, divisor = tl.load(counts), tl.load(counts + 1)
    tl.store(sums, tl.sum(loss, 0) / count)  # the mean over no rows is NaN, as in torch
    if slopes is not None:
        tl.store(sums + 1, tl.sum(by_q, 0) / divisor)
        tl.store(sums + 2, tl.sum(by_r, 0) / divisor)
        tl.store(sums + 3, tl.sum(by_temperature, 0) / divisor)


@triton.jit
def scale_unless_one(gradients, factor, count, BLOCK: tl.constexpr):
    """Multiplies the kept gradients by a number on the device. Where that is 1, as usual, it touches nothing else."""
    factor = tl.load(factor)
    if factor != 1:
        place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        gradient = tl.load(gradients + place, mask=place < count, other=0.0)
        tl.store(gradients + place, (gradient * factor).to(gradients.dtype.element_ty), mask=place < count)


@triton.jit
def loss_backward(
    logits, labels, states, by_logits, orders, classes,
    BETA: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Writes the gradient of the smooth rows from their states."""
    index, place = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    if equation.is_smooth(orders, index):
        start = tl.cast(index, tl.int64) * classes
        target, counted, _, factor = outputs.target_of(labels, index, classes)
        _, _, _, _, power = equation.orders_of(orders, index, classes, tl.float32)
        largest, temperature = (
            tl.load(states + index * 4).to(tl.float32),
            tl.load(states + index * 4 + 1).to(tl.float32),
        )
        scale, total = tl.load(states + index * 4 + 2).to(tl.float32), tl.load(states + index * 4 + 3).to(tl.float32)
        x = (loaded(logits + start, place, classes) - largest) / temperature
        p = equation.probabilities(x, scale, total, power, BETA)
        error = tl.where(counted, (p - tl.where(place == target, 1.0, 0.0)) * factor, 0.0)
        tl.store(by_logits + start + place, error.to(by_logits.dtype.element_ty), mask=place < classes)
