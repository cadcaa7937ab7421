"""Examples, the batches they come in, and the parts of a split data set."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from experiments.data.hashes import tensor_digest
from experiments.data.long_tail import ShotRule
from experiments.data.splits import Indices, stratified_group_split


class BatchIndices(NamedTuple):
    """The examples that a sampler chooses for one batch: their numbers and a random seed for each, both int64 [n].

    `weight` is the factor of the batch's mean loss in the gradient of the step; 1 if the step has only this batch.
    """

    indices: Tensor
    seeds: Tensor
    weight: float


class Batch(NamedTuple):
    """The examples of a batch, with the indices, seeds and weight of its `BatchIndices`.

    `inputs` are [n, ...]; `targets` are class indices, int64 [n], or tokens of translations, int64 [n, length]. `split`
    is the split whose metrics count the batch; None if no metric counts it.
    """

    inputs: Tensor
    targets: Tensor
    indices: Tensor
    seeds: Tensor
    weight: float
    split: str | None

    def to(self, device: torch.device, non_blocking: bool = True) -> "Batch":
        """The same batch with its tensors on the device; Lightning calls it."""
        if device == self.inputs.device:
            return self
        inputs, targets, seeds = (
            tensor.to(device, non_blocking=non_blocking) for tensor in (self.inputs, self.targets, self.seeds)
        )
        return self._replace(inputs=inputs, targets=targets, seeds=seeds)


class Examples(Protocol):
    """The examples of one split; for classification `targets` are their class indices, int64 [n].

    `content_hash` says what a further method `digest` is for.
    """

    targets: Any

    def read(self, indices: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and targets of the examples [n], given a random seed for each; a DataError names a damaged file."""


@dataclass(frozen=True)
class InMemory:
    """Examples in one tensor, inputs [n, ...] and targets [n]."""

    inputs: Tensor
    targets: Tensor

    def read(self, indices: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor]:
        return self.inputs.index_select(0, indices), self.targets.index_select(0, indices)

    def digest(self) -> bytes:
        return tensor_digest(self.inputs, self.targets)


class Subset:
    """Some of the examples of a split, by their numbers, int64 [n]."""

    def __init__(self, examples: Examples, indices: Tensor) -> None:
        self.examples, self.indices, self.targets = examples, indices, examples.targets[indices]

    def read(self, indices: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor]:
        return self.examples.read(self.indices[indices], seeds)


@dataclass(frozen=True)
class ClassificationData:
    """A classification data set, split and encoded."""

    train: Examples
    test: Examples
    class_names: tuple[str, ...]  # of each class index
    facts: dict[str, int | float | str] = field(default_factory=dict)  # for the record; the data module adds `counts`
    sizes: dict[str, int] = field(default_factory=dict)  # that a network may need: `features`, `vocabulary_size`
    augment: Callable[[Tensor, Tensor], Tensor] | None = None  # changes training inputs, given a seed for each
    shot_rule: ShotRule | None = None  # groups classes by their training examples; None if the classes are balanced
    groups: Tensor | None = None  # numbers of training examples, [n], equal for examples that repeat one another
    train_as_measured: Examples | None = None  # the training examples, if they are measured in another form
    validation: Examples | None = None  # held out of training, for the choice of settings
    # From the content of a file to inputs [n, ...] and a name for each; raises a ValueError for wrong content.
    encode: Callable[[bytes], tuple[Tensor, list[str]]] | None = None
    content_hash: str = ""  # see `hashes.content_hash`; the data module adds it

    @classmethod
    def from_tensors(
        cls,
        inputs: Tensor,
        targets: Tensor,
        class_names: Iterable[str],
        test_fraction: float = 0.2,
        split_seed: int = 0,
        **more: Any,
    ) -> "ClassificationData":
        """Split inputs [n, ...] with their class indices [n] so that each class keeps its share on both sides.

        A share of `test_fraction` is held out for testing; `split_seed` is apart from the training seed; `more` are
        further attributes, such as `augment` or `encode`. A ConfigurationError names a class that is too small.
        """
        sides = stratified_group_split(targets.numpy(), range(len(inputs)), test_fraction, split_seed)
        train, test = (InMemory(inputs[side], targets[side]) for side in sides)
        return cls(train, test, tuple(map(str, class_names)), **{"sizes": sizes_of(inputs[0])} | more)

    @property
    def shots(self) -> dict[str, Tensor] | None:
        """The classes of each shot group, by the name of the group; None where the classes are balanced."""
        return self.shot_rule.groups(self._class_counts()) if self.shot_rule else None

    def counts(self) -> dict[str, int | str]:
        """The number of examples of each split, and the shot groups."""
        splits = {"train": self.train, "test": self.test, "validation": self.validation}
        sizes = {f"{name}_size": len(split.targets) for name, split in splits.items() if split is not None}
        return sizes | (self.shot_rule.facts(self._class_counts()) if self.shot_rule else {})

    def with_validation(self, kept: Indices, held_out: Indices) -> "ClassificationData":
        """The same data, with the training examples `held_out` for validation and the examples `kept` for training."""
        split = hashlib.sha256(self.content_hash.encode() + tensor_digest(torch.from_numpy(held_out)))
        measured = self.train_as_measured
        return replace(
            self,
            train=Subset(self.train, torch.from_numpy(kept)),
            train_as_measured=measured and Subset(measured, torch.from_numpy(kept)),
            validation=Subset(measured or self.train, torch.from_numpy(held_out)),
            content_hash=split.hexdigest(),
            groups=None,
        )

    def _class_counts(self) -> list[int]:
        return self.train.targets.bincount(minlength=len(self.class_names)).tolist()


def sizes_of(example: Tensor) -> dict[str, int]:
    """The size `features` of an input that is a row, and `channels` of one that is an image."""
    name = {1: "features", 3: "channels"}.get(example.dim())
    return {name: example.shape[0]} if name else {}
