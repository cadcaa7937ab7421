"""Quotients of exponentials and logarithms whose limits at zero are removable.

Each one is evaluated, and differentiates, without loss of digits at and near zero: a Taylor or an inverse hyperbolic
tangent series takes over where the quotient's derivative would divide a rounded difference by a small number.
"""

import math

import torch
from torch import Tensor

_EXPONENTIAL_TERMS = 20  # 1/20! < 2^-61: enough for |u| <= 1 and two derivatives
_LOGARITHM_TERMS = 12  # z <= 1/9 where |u| <= 0.2: z^24 is far below 2^-53


def expm1_ratio(u: Tensor) -> Tensor:
    """(eᵘ − 1)/u, and 1 at u = 0."""
    small = u.abs() < 1
    large = torch.where(small, 1, u)
    return torch.where(small, _exponential_series(u, small, 1), torch.expm1(large) / large)


def expm1_remainder(u: Tensor) -> Tensor:
    """(eᵘ − 1 − u)/u², and 1/2 at u = 0."""
    small = u.abs() < 1
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
    for power in reversed(range(_EXPONENTIAL_TERMS)):
        total = total * u + 1 / math.factorial(power + order)
    return total


def _logarithm_series(u: Tensor) -> Tensor:
    """log(1 + u)/u = 2 artanh(z)/u with z = u/(2 + u)."""
    z = u / (2 + u)
    total = torch.zeros_like(u)
    for power in reversed(range(_LOGARITHM_TERMS)):
        total = total * z * z + 1 / (2 * power + 1)
    return 2 * total / (2 + u)
