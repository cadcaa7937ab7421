"""In which order, and in what shares of the classes, examples are drawn in batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from experiments.configuration import FEWEST_EXAMPLES
from experiments.dataset import Batch, Draw, Examples, Reader
from experiments.randomness import sample_seeds

# The share of a class of n examples is proportional to n^exponent (Kang et al., Decoupling, 2020, Eq. 1).
_EXPONENTS = {"instance": 1.0, "square_root": 0.5, "class_balanced": 0.0}


def class_shares(sampler: str, counts: NDArray[np.int64], progress: float) -> NDArray[np.float64]:
    """The share of the draws that each class gets.

    Args:
        sampler: `instance` (nⱼ/n), `square_root` (∝ √nⱼ), `class_balanced` (1/C), or `progressive`, which goes from
            the first to the last: (1 − t/T) nⱼ/n + (t/T)/C.
        counts: training examples of each class, nⱼ ≥ 1, [classes].
        progress: t/T, epochs behind us over all but one, in [0, 1].

    Returns:
        Shares that sum to 1, [classes].

    Source: Kang et al., Decoupling Representation and Classifier for Long-Tailed Recognition, 2020, section 3.
    """
    if sampler == "progressive":
        first, last = (class_shares(name, counts, progress) for name in ("instance", "class_balanced"))
        return (1 - progress) * first + progress * last
    powers = counts ** _EXPONENTS[sampler]
    shares: NDArray[np.float64] = powers / powers.sum()
    return shares


@dataclass(frozen=True)
class Division:
    """How a training batch is divided.

    Attributes:
        processes: processes that train together.
        process: which of them this is.
        passes: forward passes that a process makes for one step, one after the other.
    """

    processes: int = 1
    process: int = 0
    passes: int = 1


class TrainingDraws(Sampler[Draw]):
    """A training epoch: as many examples as there are, in batches, this process's part of each.

    The instance sampler takes each example once, in an order that is a function of (seed, epoch); the others draw with
    replacement, likewise. Assign `epoch` before each epoch. Between them, the processes draw each batch once.

    Args:
        targets: class of each example, int64 [n].
        sampler: as for `class_shares`.
        batch_size: examples a step, over all processes and passes.
        seed: the training seed.
        epochs: in all.
        steps: the most steps an epoch has; None for all.
        division: of each batch. What is left at an epoch's end and is too little for every pass is not drawn.
    """

    def __init__(
        self,
        targets: NDArray[np.int64],
        sampler: str,
        batch_size: int,
        seed: int,
        epochs: int,
        steps: int | None,
        division: Division,
    ) -> None:
        self.targets, self.sampler, self.batch_size, self.seed = targets, sampler, batch_size, seed
        self.epochs, self.division, self.epoch = epochs, division, 0
        whole, rest = divmod(len(targets), batch_size)
        enough = FEWEST_EXAMPLES * division.processes * division.passes
        found = whole + (rest >= enough)
        self.steps = found if steps is None else min(steps, found)

    def __iter__(self) -> Iterator[Draw]:
        order = self._order()
        seeds = sample_seeds(self.seed, self.epoch, order)
        parts = self.division.processes * self.division.passes
        for start in range(0, self.steps * self.batch_size, self.batch_size):
            end = min(start + self.batch_size, len(order))
            for turn in range(self.division.passes):
                part = slice(start + self.division.process + turn * self.division.processes, end, parts)
                # Gradients are summed over passes and averaged over processes.
                weight = self.division.processes * len(order[part]) / (end - start)
                # A view would bring all of an epoch's draws to a worker.
                yield Draw(order[part].clone(), seeds[part].clone(), weight)

    def __len__(self) -> int:
        return self.steps * self.division.passes

    def _order(self) -> Tensor:
        generator = np.random.default_rng([self.seed, self.epoch])
        size = len(self.targets)
        if self.sampler == "instance":
            return torch.from_numpy(generator.permutation(size))
        classes, counts = np.unique(self.targets, return_counts=True)
        shares = class_shares(self.sampler, counts, self.epoch / max(1, self.epochs - 1))
        example_shares = (shares / counts)[np.searchsorted(classes, self.targets)]
        return torch.from_numpy(generator.choice(size, size, p=example_shares))


def measuring_draws(size: int, batch_size: int, division: Division) -> list[Draw]:
    """All examples once, in the order given: this process's part, `batch_size` at a time."""
    own = torch.arange(size)[division.process :: division.processes]
    return [Draw(chunk.clone(), torch.zeros_like(chunk), 1.0) for chunk in own.split(batch_size)]  # nothing is random


class EpochDraws(Protocol):
    """The draws of a training epoch, those of the epoch assigned."""

    epoch: int

    def __iter__(self) -> Iterator[Draw]: ...

    def __len__(self) -> int: ...


Draws = EpochDraws | Sequence[Draw]


class ReadHere:
    """Batches of the draws, read in this process: what a DataLoader without workers does, in less time."""

    def __init__(self, reader: Reader, draws: Draws) -> None:
        self.reader, self.draws = reader, draws

    def __iter__(self) -> Iterator[Batch]:
        return map(self.reader.__getitem__, self.draws)

    def __len__(self) -> int:
        return len(self.draws)


def loader(examples: Examples, draws: Draws, workers: int, pin_memory: bool) -> ReadHere | DataLoader[Batch]:
    """Batches of the draws, read here or by worker processes.

    Args:
        examples: what is drawn from.
        draws: what is drawn.
        workers: processes that read ahead; 0 reads in this one.
        pin_memory: whether batches that workers read go to a device with memory of its own.
    """
    reader = Reader(examples)
    if workers == 0:
        return ReadHere(reader, draws)
    return DataLoader(
        reader,  # type: ignore[arg-type]  # indexed by draws, not by numbers
        sampler=draws,  # type: ignore[arg-type]
        batch_size=None,
        num_workers=workers,
        persistent_workers=True,
        pin_memory=pin_memory,
        generator=torch.Generator(),  # else it draws from the network's numbers, once in a process
    )
