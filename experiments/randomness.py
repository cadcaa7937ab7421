"""Random numbers that belong to an example, whatever process, batch or device it is drawn in."""

from collections.abc import Sequence

import torch
from torch import Tensor

# SplitMix64 (Steele, Lea and Flood, 2014), in 64-bit integers that wrap around.
_INCREMENT = -0x61C8864680B583EB
_FIRST_FACTOR = -0x40A7B892E31B1A47
_SECOND_FACTOR = -0x6B2FB644ECCEEE15


def sample_seeds(seed: int, epoch: int, indices: Sequence[int]) -> Tensor:
    """A seed for each example, a function of (seed, epoch, index) alone: int64 [n], over the whole range."""
    state = _mixed(torch.tensor([seed]))
    state = _mixed(state ^ epoch)
    return _mixed(state ^ torch.tensor(indices, dtype=torch.int64))


def uniform(seeds: Tensor, stream: int) -> Tensor:
    """One number in [0, 1) for each seed, float64; each stream gives others.

    Args:
        seeds: int64 [n], of `sample_seeds`.
        stream: which of a seed's numbers, ≥ 0.
    """
    return _shifted(_mixed(seeds + (stream + 1) * _INCREMENT), 11).double() * 2.0**-53


def _mixed(state: Tensor) -> Tensor:
    state = state + _INCREMENT
    state = (state ^ _shifted(state, 30)) * _FIRST_FACTOR
    state = (state ^ _shifted(state, 27)) * _SECOND_FACTOR
    return state ^ _shifted(state, 31)


def _shifted(state: Tensor, bits: int) -> Tensor:
    """Shifted right, zeros moving in; torch moves the sign in."""
    return (state >> bits) & ((1 << (64 - bits)) - 1)
