"""Random numbers that belong to an example and do not depend on its process, batch or device."""

import random

import numpy as np
import torch
from torch import Tensor

# SplitMix64 (Steele, Lea and Flood, 2014), in 64-bit integers that wrap around.
_INCREMENT = -0x61C8864680B583EB
_FIRST_FACTOR = -0x40A7B892E31B1A47
_SECOND_FACTOR = -0x6B2FB644ECCEEE15


def sample_seeds(seed: int, epoch: int, indices: Tensor) -> Tensor:
    """A seed for each example of an epoch. It depends only on (seed, epoch, example, how often it was drawn before).

    `indices` are the examples in the order of the epoch, int64 [n]; the seeds are int64 [n], over the whole range.
    """
    numbers = indices.numpy()
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    times_before = np.empty_like(numbers)
    times_before[order] = np.arange(len(numbers)) - np.searchsorted(ordered, ordered)
    state = _mixed(_mixed(torch.tensor([seed])) ^ epoch)
    return _mixed(_mixed(state ^ indices) ^ torch.from_numpy(times_before))


def seed_generators(seed: int) -> None:
    """Seed the processor's generators of torch, NumPy and Python, from which a data set may draw."""
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  # it takes no other seeds
    random.seed(seed)


def uniform(seeds: Tensor, stream: int) -> Tensor:
    """One number in [0, 1) for each of the `sample_seeds`, float64 [n]; each stream ≥ 0 has numbers of its own."""
    increment = torch.tensor(stream + 1, device=seeds.device) * _INCREMENT  # as a tensor it wraps around
    return _shifted(_mixed(seeds + increment), 11).double() * 2.0**-53


def _mixed(state: Tensor) -> Tensor:
    state = state + _INCREMENT
    state = (state ^ _shifted(state, 30)) * _FIRST_FACTOR
    state = (state ^ _shifted(state, 27)) * _SECOND_FACTOR
    return state ^ _shifted(state, 31)


def _shifted(state: Tensor, bits: int) -> Tensor:
    """Shifted right, zeros moving in; torch moves the sign in."""
    return (state >> bits) & ((1 << (64 - bits)) - 1)
