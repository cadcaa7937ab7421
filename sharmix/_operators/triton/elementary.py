"""Functions that Triton lacks, without loss of digits near 0; and reductions of several values at once."""

import os

import triton
import triton.language as tl

# The interpreter loops over the elements of a reduction of several values, in Python.
_IN_ONE = tl.constexpr(os.environ.get("TRITON_INTERPRET") != "1")


@triton.jit
def log1p(u):
    total = 1 + u
    return tl.log(total) + (u - (total - 1)) / total


@triton.jit
def expm1_remainder(x):
    """(eˣ − 1 − x)/x²."""
    if x.dtype == tl.float64:
        near = x * 0 + 0.5
        for n in tl.static_range(14, 0, -1):  # sum of xⁿ/(n+2)!
            near = 0.5 + near * x * (1 / (n + 2))
    else:
        near = 1 / 120 + x * (1 / 720 + x * (1 / 5040 + x * (1 / 40320 + x / 362880)))
        near = 0.5 + x * (1 / 6 + x * (1 / 24 + x * near))
    far = (tl.exp(x) - 1 - x) / (x * x)
    return tl.where(tl.abs(x) < 0.5, near, far)


@triton.jit
def expm1(x):
    return tl.where(tl.abs(x) < 0.5, x + x * x * expm1_remainder(x), tl.exp(x) - 1)


@triton.jit
def expm1_ratio(x):
    """(eˣ − 1)/x."""
    return 1 + x * expm1_remainder(x)


@triton.jit
def expm1_ratio_slope(x):
    """(eˣ − 1)/x differentiated by x."""
    if x.dtype == tl.float64:
        near = x * 0 + 0.5
        for n in tl.static_range(14, 0, -1):  # sum of (n+1) xⁿ/(n+2)!
            near = 0.5 + near * x * ((n + 1) / (n * (n + 2)))
    else:
        near = 1 / 30 + x * (1 / 144 + x * (1 / 840 + x * (1 / 5760 + x / 45360)))
        near = 0.5 + x * (1 / 3 + x * (1 / 8 + x * near))
    far = (tl.exp(x) * (x - 1) + 1) / (x * x)
    return tl.where(tl.abs(x) < 0.5, near, far)


@triton.jit
def _add_two(a, b, c, d):
    return a + c, b + d


@triton.jit
def sum_of_two(a, b):
    if _IN_ONE:
        a, b = tl.reduce((a, b), 0, _add_two)
    else:
        a, b = tl.sum(a, 0), tl.sum(b, 0)
    return a, b


@triton.jit
def _add_four(a, b, c, d, e, f, g, h):
    return a + e, b + f, c + g, d + h


@triton.jit
def sum_of_four(a, b, c, d, AXIS: tl.constexpr = 0):
    if _IN_ONE:
        a, b, c, d = tl.reduce((a, b, c, d), AXIS, _add_four)
    else:
        a, b, c, d = tl.sum(a, AXIS), tl.sum(b, AXIS), tl.sum(c, AXIS), tl.sum(d, AXIS)
    return a, b, c, d


@triton.jit
def _larger(a, b, c, d):
    return tl.maximum(a, c), b | d


@triton.jit
def largest_of(values):
    """The largest value; NaN if there is a NaN."""
    doubt = (values != values).to(tl.int32)
    if _IN_ONE:
        top, doubt = tl.reduce((values, doubt), 0, _larger)
    else:
        top, doubt = tl.max(tl.where(values != values, 0.0, values), 0), tl.max(doubt, 0)
    return tl.where(doubt > 0, float("nan"), top)


@triton.jit
def _larger_or_nan(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def largest_of_rows(values):
    """The largest value of each row of a matrix; NaN if there is a NaN."""
    if _IN_ONE:
        top = tl.reduce(values, 1, _larger_or_nan)
    else:
        top = tl.where(tl.max((values != values).to(tl.int32), 1) > 0, float("nan"), tl.max(values, 1))
    return top
