"""Batches of in-memory examples, in an order that depends on seed and epoch alone."""

from collections.abc import Iterator

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler


class Examples(Dataset[tuple[Tensor, Tensor]]):
    """Inputs and targets, taken many at a time."""

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        self.inputs, self.targets = inputs, targets

    def __getitem__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        return self.inputs[indices], self.targets[indices]

    def __len__(self) -> int:
        return len(self.targets)


class ShuffledBatches(Sampler[list[int]]):
    """Batches of all indices, shuffled anew for each epoch; the trainer says which epoch it is.

    The order is a function of (seed, epoch), so a run resumed at an epoch sees what an uninterrupted one would.
    """

    def __init__(self, size: int, batch_size: int, seed: int) -> None:
        self.size, self.batch_size, self.seed, self.epoch = size, batch_size, seed, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        order = np.random.default_rng([self.seed, self.epoch]).permutation(self.size).tolist()
        for start in range(0, self.size, self.batch_size):
            yield order[start : start + self.batch_size]

    def __len__(self) -> int:
        return -(-self.size // self.batch_size)


def shuffled_loader(inputs: Tensor, targets: Tensor, batch_size: int, seed: int) -> DataLoader[tuple[Tensor, Tensor]]:
    """Batches for training; the last one of an epoch may be smaller."""
    sampler = ShuffledBatches(len(targets), batch_size, seed)
    return DataLoader(Examples(inputs, targets), sampler=sampler, batch_size=None)


def ordered_loader(inputs: Tensor, targets: Tensor, batch_size: int) -> DataLoader[tuple[Tensor, Tensor]]:
    """Batches for measuring, in the order given."""
    batches = [
        list(range(start, min(start + batch_size, len(targets)))) for start in range(0, len(targets), batch_size)
    ]
    return DataLoader(Examples(inputs, targets), sampler=batches, batch_size=None)
