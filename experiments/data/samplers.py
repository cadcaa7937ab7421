"""The order in which examples are drawn, the share of each class, and the batches that result."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Sampler

from experiments.data.examples import BatchIndices
from experiments.data.randomness import sample_seeds
from experiments.errors import ConfigurationError

ClassSampler = Literal["instance", "square_root", "class_balanced", "progressive"]
FEWEST_EXAMPLES = 2  # in one forward pass of training: batch normalisation needs a variance

# The share of a class of n examples is proportional to n^exponent (Kang et al., Decoupling, 2020, Eq. 1).
_EXPONENTS = {"instance": 1.0, "square_root": 0.5, "class_balanced": 0.0}


def class_shares(sampler: str, counts: NDArray[np.int64], progress: float) -> NDArray[np.float64]:
    """The share of the draws that each class gets.

    Args:
        sampler: `instance` (nⱼ/n), `square_root` (∝ √nⱼ), `class_balanced` (1/C), or `progressive`, which moves from
            `instance` to `class_balanced`: (1 − t/T) nⱼ/n + (t/T)/C.
        counts: training examples of each class, nⱼ ≥ 1, [classes].
        progress: t/T, the finished epochs divided by all epochs but one, in [0, 1].

    Returns:
        Shares that sum to 1, [classes].

    Source: Kang et al., Decoupling Representation and Classifier for Long-Tailed Recognition, 2020, section 3.
    """
    if sampler == "progressive":
        first, last = (class_shares(name, counts, progress) for name in ("instance", "class_balanced"))
        return (1 - progress) * first + progress * last
    powers = counts ** _EXPONENTS[sampler]
    return powers / powers.sum()


@dataclass(frozen=True)
class BatchDivision:
    """How the examples of one optimizer step are divided: among processes, and the forward passes of each process."""

    processes: int = 1
    process: int = 0  # this one
    passes: int = 1

    @property
    def parts(self) -> int:
        return self.processes * self.passes

    def part(self, turn: int) -> int:
        """The number of the part that this process takes in its forward pass `turn`."""
        return self.process + turn * self.processes


class EpochSampler(Sampler[BatchIndices]):
    """The batches of a training epoch of `steps` steps; Lightning calls `set_epoch` before each."""

    epoch = 0
    steps: int
    division: BatchDivision

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.steps * self.division.passes


@dataclass(eq=False)
class TrainingSampler(EpochSampler):
    """The batches of a training epoch, with as many draws as there are examples; this process's part of each batch.

    The instance sampler draws each example once; the other samplers draw with replacement. The order is a function of
    (seed, epoch). Together the processes draw each batch once. A rest at the epoch's end that is too small for every
    part is not drawn.

    Raises:
        ConfigurationError: the batch size cannot be divided.
    """

    targets: NDArray[np.int64]  # the class of each example, [n]
    sampler: str  # as for `class_shares`
    batch_size: int  # examples of a step, over all processes and passes
    seed: int
    epochs: int  # of the training, for the progressive sampler
    division: BatchDivision

    def __post_init__(self) -> None:
        parts, enough = self.division.parts, FEWEST_EXAMPLES * self.division.parts
        if self.batch_size % parts or self.batch_size < enough:
            raise ConfigurationError(
                f"data.batch_size={self.batch_size} is not allowed; it counts the examples of a step over all devices, "
                "nodes and passes, and must be divisible by trainer.devices * trainer.num_nodes * "
                f"trainer.accumulate_grad_batches = {parts}, with at least {FEWEST_EXAMPLES} examples for each"
            )
        whole, rest = divmod(len(self.targets), self.batch_size)
        self.steps = whole + (rest >= enough)
        if not self.steps:
            raise ConfigurationError(f"{len(self.targets)} training examples are too few for {parts} parts a step")

    def __iter__(self) -> Iterator[BatchIndices]:
        order = self._order()
        seeds = sample_seeds(self.seed, self.epoch, order)
        for start in range(0, self.steps * self.batch_size, self.batch_size):
            end = min(start + self.batch_size, len(order))
            for turn in range(self.division.passes):
                part = slice(start + self.division.part(turn), end, self.division.parts)
                # Lightning takes the mean of the gradients over passes and processes.
                weight = self.division.parts * len(order[part]) / (end - start)
                # A view would bring the whole epoch's indices to a worker.
                yield BatchIndices(order[part].clone(), seeds[part].clone(), weight)

    def _order(self) -> Tensor:
        generator = np.random.default_rng([self.seed, self.epoch])
        size = len(self.targets)
        if self.sampler == "instance":
            return torch.from_numpy(generator.permutation(size))
        classes, counts = np.unique(self.targets, return_counts=True)
        shares = class_shares(self.sampler, counts, self.epoch / max(1, self.epochs - 1))
        example_shares = (shares / counts)[np.searchsorted(classes, self.targets)]
        return torch.from_numpy(generator.choice(size, size, p=example_shares))


def evaluation_batches(order: Tensor, batch_size: int, division: BatchDivision) -> list[BatchIndices]:
    """This process's part of the examples in the given order, each once, `batch_size` at a time."""
    own = order[division.process :: division.processes]
    return [BatchIndices(chunk.clone(), torch.zeros_like(chunk), 1.0) for chunk in own.split(batch_size)]
