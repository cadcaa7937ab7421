"""Quotients of exponentials and logarithms whose limits at zero are removable.

Each one is evaluated, and differentiates, without loss of digits at and near zero: a series takes over where the
quotient, or its derivative, would divide a rounded difference by a small number.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

_SMALL = 0.5  # below it the series are used; above it the quotients lose no more than two bits
_EXPONENTIAL_TERMS = {torch.float32: 9, torch.float64: 15}  # 0.5^n/n! is below half a unit of rounding
_LOGARITHM_TERMS = {torch.float32: 5, torch.float64: 9}  # z^(2n) with z <= 1/9, likewise


def expm1_ratio(u: Tensor) -> Tensor:
    """(eᵘ − 1)/u, and 1 at u = 0."""
    return _exponential(u, lambda power: 1 / math.factorial(power + 1), lambda large: torch.expm1(large) / large)


def expm1_remainder(u: Tensor) -> Tensor:
    """(eᵘ − 1 − u)/u², and 1/2 at u = 0."""
    return _exponential(
        u, lambda power: 1 / math.factorial(power + 2), lambda large: (torch.expm1(large) - large) / large / large
    )


def expm1_ratio_slope(u: Tensor) -> Tensor:
    """The derivative of (eᵘ − 1)/u, and 1/2 at u = 0."""
    return _exponential(
        u,
        lambda power: (power + 1) / math.factorial(power + 2),
        lambda large: (large.exp() - torch.expm1(large) / large) / large,
    )


def log1p_ratio(u: Tensor) -> Tensor:
    """log(1 + u)/u for u > −1, and 1 at u = 0: 2 artanh(z)/u with z = u/(2 + u), where u is small."""
    small = u.abs() < 0.2
    large = torch.where(small, 1, u)
    z = torch.where(small, u, 0) / (2 + u)
    series = _polynomial(z * z, [1 / (2 * power + 1) for power in range(_LOGARITHM_TERMS[u.dtype])])
    return torch.where(small, 2 * series / (2 + u), torch.log1p(large) / large)


def _exponential(u: Tensor, coefficient: Callable[[int], float], quotient: Callable[[Tensor], Tensor]) -> Tensor:
    """Σₙ coefficient(n) uⁿ where u is small, the quotient elsewhere; neither is evaluated at the other's u."""
    small = u.abs() < _SMALL
    series = _polynomial(torch.where(small, u, 0), [coefficient(power) for power in range(_EXPONENTIAL_TERMS[u.dtype])])
    return torch.where(small, series, quotient(torch.where(small, 1, u)))


def _polynomial(u: Tensor, coefficients: list[float]) -> Tensor:
    """Σₙ coefficients[n] uⁿ by Horner's rule."""
    total = torch.full_like(u, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total * u + coefficient
    return total
