"""What kernels read of labels, and what they write of a row's map or loss. An output of None is not wanted."""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from sharmix._operators.triton import equation


class MapOutputs(NamedTuple):
    """p, the conjugate, and for the backward pass: the place of the largest p, and the support.

    The support of a row is a list of places, and their number, or −1 where the list is too short.
    """

    probabilities: Any
    conjugates: Any
    tops: Any
    support: Any
    counts: Any


class Labels(NamedTuple):
    """Class indices, and the index of rows that do not count; the divisor of the gradient, and its factors.

    The divisor is one number, and the factor of row i is at i · step. None stands for 1.
    """

    targets: Any
    ignored: int
    divisor: Any
    factors: Any = None
    step: int = 0


class LossOutputs(NamedTuple):
    """The losses of rows, (p − y)/divisor, the states (largest, T₀, scale, total), and the slopes by q, r and T₀."""

    losses: Any
    gradients: Any
    states: Any
    slopes: Any


@triton.jit
def write(at, values, mask):
    if at.dtype.element_ty == tl.bfloat16:
        values = values.to(tl.float32)  # the interpreter makes no bfloat16 of a float64
    tl.store(at, values.to(at.dtype.element_ty), mask=mask)


@triton.jit
def is_defined(largest):
    """Whether a row has a solution: a NaN is neither below nor above."""
    return (largest > -float("inf")) & (largest < float("inf"))


@triton.jit
def write_map(out, index, solution, largest, top):
    """All of `MapOutputs` but p and the support."""
    if out.conjugates is not None:
        conjugate = tl.where(is_defined(largest), solution.conjugate, float("nan"))
        tl.store(out.conjugates + index, conjugate.to(out.conjugates.dtype.element_ty))
    if out.tops is not None:
        tl.store(out.tops + index, top)


@triton.jit
def target_of(labels, index, classes):
    """The target, whether its row counts, whether it is a class, and what multiplies the gradient."""
    target = tl.load(labels.targets + index)
    is_class = (target >= 0) & (target < classes)
    factor = tl.full([], 1, tl.float32)
    if labels.divisor is not None:
        factor = 1 / tl.load(labels.divisor)
    if labels.factors is not None:
        factor = factor * tl.load(labels.factors + index * labels.step)
    return target, target != labels.ignored, is_class, factor


@triton.jit
def write_error(gradients, start, place, p, target, factor, classes):
    """(p − y) · factor of some classes of a row that starts at `start`."""
    error = (p - tl.where(place == target, 1.0, 0.0)) * factor
    write(gradients + start + place, error, place < classes)


@triton.jit
def write_loss(out, index, solution, largest, own, is_class, renyi_slope, q, r, temperature):
    """All of `LossOutputs` but the gradient, for a row that counts; `own` is the logit of the target."""
    loss = solution.conjugate - (own - largest)
    loss = tl.where(loss < 0, 0.0, loss)  # rounding can leave −1e-7 at p = y
    loss = tl.where(is_defined(largest) & is_class, loss, float("nan"))
    tl.store(out.losses + index, loss.to(out.losses.dtype.element_ty))
    if out.states is not None:
        tl.store(out.states + index * 4, largest.to(tl.float64))
        tl.store(out.states + index * 4 + 1, temperature.to(tl.float64))
        tl.store(out.states + index * 4 + 2, solution.scale.to(tl.float64))
        total = tl.where(is_class, solution.total, float("nan"))
        tl.store(out.states + index * 4 + 3, total.to(tl.float64))
    if out.slopes is not None:
        by_q, by_r, by_temperature = equation.slopes_of_loss(renyi_slope, solution.renyi, q, r, temperature)
        tl.store(out.slopes + index * 3, by_q.to(out.slopes.dtype.element_ty))
        tl.store(out.slopes + index * 3 + 1, by_r.to(out.slopes.dtype.element_ty))
        tl.store(out.slopes + index * 3 + 2, by_temperature.to(out.slopes.dtype.element_ty))


@triton.jit
def write_nothing(out, index):
    """The loss, state and slopes of a row that does not count."""
    tl.store(out.losses + index, 0.0)
    if out.states is not None:
        for column in tl.static_range(4):
            tl.store(out.states + index * 4 + column, 1.0)
    if out.slopes is not None:
        for column in tl.static_range(3):
            tl.store(out.slopes + index * 3 + column, 0.0)
