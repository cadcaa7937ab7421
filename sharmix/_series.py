"""Quotients of exponentials and logarithms whose limits at zero are removable.

Each one is evaluated, and differentiates, without loss of digits at and near zero: a Taylor or an inverse hyperbolic
tangent series takes over where the quotient's derivative would divide a rounded difference by a small number.
"""

import math

import torch
from torch import Tensor

_SMALL = 0.5  # where the exponentials' series takes over: the quotients beyond lose no more than two bits
_EXPONENTIAL_TERMS = {torch.float32: 9, torch.float64: 15}  # 0.5^n/n! is below half a unit of rounding
_LOGARITHM_TERMS = {torch.float32: 5, torch.float64: 9}  # z^(2n) with z <= 1/9, likewise


def expm1_ratio(u: Tensor) -> Tensor:
    """(eᵘ − 1)/u, and 1 at u = 0."""
    small = u.abs() < _SMALL
    large = torch.where(small, 1, u)
    return torch.where(small, _exponential_series(u, small, 1), torch.expm1(large) / large)


def expm1_remainder(u: Tensor) -> Tensor:
    """(eᵘ − 1 − u)/u², and 1/2 at u = 0."""
    small = u.abs() < _SMALL
    large = torch.where(small, 1, u)
    quotient = (torch.expm1(large) - large) / large / large
    return torch.where(small, _exponential_series(u, small, 2), quotient)


def expm1_ratio_slope(u: Tensor) -> Tensor:
    """The derivative of (eᵘ − 1)/u, and 1/2 at u = 0."""
    return expm1_ratio(u) - expm1_remainder(u)


def log1p_ratio(u: Tensor) -> Tensor:
    """log(1 + u)/u for u > −1, and 1 at u = 0."""
    small = u.abs() < 0.2
    large = torch.where(small, 1, u)
    return torch.where(small, _logarithm_series(torch.where(small, u, 0)), torch.log1p(large) / large)


def _exponential_series(u: Tensor, where: Tensor, order: int) -> Tensor:
    """Σⱼ uʲ/(j + order)! where asked, its value at 0 elsewhere."""
    u = torch.where(where, u, 0)
    total = torch.zeros_like(u)
    for power in reversed(range(_EXPONENTIAL_TERMS[u.dtype])):
        total = total * u + 1 / math.factorial(power + order)
    return total


def _logarithm_series(u: Tensor) -> Tensor:
    """log(1 + u)/u = 2 artanh(z)/u with z = u/(2 + u)."""
    z = u / (2 + u)
    square, total = z * z, torch.zeros_like(u)
    for power in reversed(range(_LOGARITHM_TERMS[u.dtype])):
        total = total * square + 1 / (2 * power + 1)
    return 2 * total / (2 + u)
