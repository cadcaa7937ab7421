"""What every data set of the suite hands to training."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

LOCAL_DATA = Path("data")  # where a data set is fetched to; git ignores it


class Draw(NamedTuple):
    """Examples asked for at once.

    Attributes:
        indices: which examples, int64 [n].
        seeds: a random seed for each of them, int64 [n].
        weight: what their mean loss counts in the step's gradient; 1 where the step is this draw alone.
    """

    indices: Tensor
    seeds: Tensor
    weight: float


class Batch(NamedTuple):
    """Examples as a data set gives them.

    Attributes:
        inputs: one example a row, [n, ...].
        targets: class indices, int64 [n], or tokens of translations, int64 [n, length].
        indices: as drawn.
        seeds: as drawn.
        weight: as drawn.
        unreadable: names of examples asked for that could not be read, and why; they are missing from the rows.
    """

    inputs: Tensor
    targets: Tensor
    indices: Tensor
    seeds: Tensor
    weight: float
    unreadable: list[str]

    def to(self, device: torch.device) -> "Batch":
        """The same with its tensors on the device."""
        inputs, targets, seeds = (
            tensor.to(device, non_blocking=True) for tensor in (self.inputs, self.targets, self.seeds)
        )
        return self._replace(inputs=inputs, targets=targets, seeds=seeds)


class Examples(Protocol):
    """One side of a split."""

    def read(self, indices: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor, list[str]]:
        """Inputs and targets of the examples asked for that can be read, and the names of the others."""


class LabelledExamples(Examples, Protocol):
    """One side of a split into classes."""

    targets: Tensor  # class indices, int64 [n]


@dataclass(frozen=True)
class InMemory:
    """Examples that lie in one tensor, inputs [n, ...] and targets [n]."""

    inputs: Tensor
    targets: Tensor

    def read(self, indices: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor, list[str]]:
        return self.inputs.index_select(0, indices), self.targets.index_select(0, indices), []


@dataclass(frozen=True)
class ClassificationData:
    """A classification data set, split and encoded.

    Attributes:
        train: the training examples.
        test: the held-out examples.
        class_names: the name of each class index.
        split_hash: hash of which example lies on which side, see `splits.split_hash`.
        facts: what a run's record tells of the data: sizes, counts per class, repeats.
        augment: what training does to inputs, given a seed for each; None where nothing is done.
        shots: the classes of each shot group, by its name; None where the classes are balanced.
        unreadable_most: how many examples may be unreadable.
    """

    train: LabelledExamples
    test: LabelledExamples
    class_names: tuple[str, ...]
    split_hash: str
    facts: dict[str, int | float | str]
    augment: Callable[[Tensor, Tensor], Tensor] | None = None
    shots: dict[str, Tensor] | None = None
    unreadable_most: int = 0


class Reader:
    """Reads draws of the examples of one side of a split as batches."""

    def __init__(self, examples: Examples) -> None:
        self.examples = examples

    def __getitem__(self, draw: Draw) -> Batch:
        inputs, targets, unreadable = self.examples.read(draw.indices, draw.seeds)
        return Batch(inputs, targets, draw.indices, draw.seeds, draw.weight, unreadable)
