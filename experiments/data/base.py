"""The base of every data set of the suite: a LightningDataModule that knows its splits."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import lightning.pytorch as L
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from experiments.data.examples import Batch, BatchIndices, ClassificationData, Examples
from experiments.data.hashes import content_hash
from experiments.data.samplers import BatchDivision, ClassSampler, EpochSampler, TrainingSampler, evaluation_batches
from experiments.data.splits import Indices, stratified_group_split
from experiments.errors import ConfigurationError, DataError, UserError
from experiments.files import read_file
from experiments.settings import AtLeastOne, Seed, Share, Workers, validated_class

Batches = EpochSampler | Sequence[BatchIndices]


class BatchReader(Dataset[Batch | DataError]):
    """Reads the examples that a sampler chooses. The metrics of `split` count them, unless `split` is None."""

    def __init__(self, examples: Examples, split: str | None) -> None:
        self.examples, self.split = examples, split

    def __getitem__(self, chosen: BatchIndices) -> Batch | DataError:
        try:
            return Batch(*self.examples.read(chosen.indices, chosen.seeds), *chosen, self.split)
        except DataError as error:
            return error


class BatchLoader(DataLoader[Batch]):
    """Batches read by this process or by workers, whose DataErrors are raised here, without the worker's traceback."""

    def __iter__(self) -> Iterator[Batch]:
        for batch in super().__iter__():
            if isinstance(batch, DataError):
                raise batch
            yield batch


@validated_class
class SplitDataModule(L.LightningDataModule, ABC):
    """Batches of the splits of one data set, the same for a seed and an epoch, whatever processes read them.

    `setup` stores the splits in `data`. After each training epoch the splits in `evaluated` are measured. Lightning
    passes the number of the epoch to the training sampler by `set_epoch`.

    Arguments: `conf/data/base/`. `batch_size` counts examples in `classification.yaml`, target tokens in
    `translation.yaml`.
    """

    seed: Seed
    batch_size: AtLeastOne
    evaluation_batch_size: AtLeastOne
    num_workers: Workers = 0
    expected_examples: dict[str, AtLeastOne] | None = None

    evaluated: ClassVar[tuple[str, ...]]
    drawn_by_seed: ClassVar[bool] = False  # whether `load` depends on the training seed
    data = None

    def __post_init__(self) -> None:
        super().__init__()

    @abstractmethod
    def load(self) -> Any:
        """Load the splits of the data set; download missing files. A DataError names the place and the remedy."""

    @abstractmethod
    def training_sampler(self, division: BatchDivision) -> EpochSampler:
        """The batches of a training epoch."""

    @abstractmethod
    def network_arguments(self) -> dict[str, int]:
        """Sizes of the data that a network needs, by the name of the network's argument."""

    @abstractmethod
    def module_arguments(self) -> dict[str, Any]:
        """Facts about the data that the LightningModule needs, by the name of the module's argument."""

    def evaluation_order(self, split: str) -> Tensor:
        """The order in which the examples of a split are measured, int64 [n]."""
        return torch.arange(len(getattr(self.data, split).targets))

    def encode(self, file: Path) -> tuple[Tensor, list[str]]:
        """Inputs [n, ...] for a file of the user's own, and a name for each; a UserError if this cannot be."""
        if getattr(self.data, "encode", None) is None:
            raise UserError(f"{type(self).__name__} cannot read inputs from a file")
        try:
            return self.data.encode(read_file(file))
        except Exception as error:  # decoders of text and images raise errors that share no base class
            raise DataError(f"{file}: cannot be read as input of {type(self).__name__} ({error})") from error

    def check_count(self, part: str, found: int, place: str, remedy: str) -> None:
        """Raise a DataError unless as many examples of a part are found as `expected_examples` says for it."""
        if found != (expected := (self.expected_examples or {}).get(part, found)):
            raise DataError(
                f"{place}: {found:,} examples, {expected:,} are expected; {remedy}, or give "
                "data.expected_examples=null to use another number"
            )

    def prepare_data(self) -> None:
        self.setup()

    def setup(self, stage: str | None = None) -> None:
        if self.data is None:
            data = self._complete(self.load())
            json.dumps(data.facts, allow_nan=False)  # now, because at the end the whole record would be lost
            self.data = data

    def _complete(self, data: Any) -> Any:
        """The loaded data in the form that is used; raises an error if the data cannot be used."""
        return data

    def train_dataloader(self) -> BatchLoader:
        split = None if "train" in self.evaluated else "train"
        sampler = self.training_sampler(self._division())
        if self.trainer is not None:  # Lightning reads the first batch of a resumed run before it calls `set_epoch`
            sampler.set_epoch(self.trainer.fit_loop.epoch_progress.current.processed)
        return self._loader(self.data.train, sampler, split)

    def val_dataloader(self) -> list[BatchLoader]:
        return [self._evaluation_loader(split) for split in self.evaluated]

    def test_dataloader(self) -> BatchLoader:
        return self._evaluation_loader("test")

    predict_dataloader = test_dataloader

    def _division(self) -> BatchDivision:
        if (trainer := self.trainer) is None:
            return BatchDivision()
        return BatchDivision(trainer.world_size, trainer.global_rank, trainer.accumulate_grad_batches)

    def _evaluation_loader(self, split: str) -> BatchLoader:
        batches = evaluation_batches(self.evaluation_order(split), self.evaluation_batch_size, self._division())
        examples = getattr(self.data, f"{split}_as_measured", None) or getattr(self.data, split)
        return self._loader(examples, batches, split)

    def _loader(self, examples: Examples, batches: Batches, split: str | None) -> BatchLoader:
        return BatchLoader(
            BatchReader(examples, split),
            sampler=batches,  # type: ignore[arg-type]  # whole batches, not single examples
            batch_size=None,
            num_workers=self.num_workers,
            persistent_workers=self.num_workers > 0,
            pin_memory=self.trainer is not None and self.trainer.strategy.root_device.type == "cuda",
            generator=torch.Generator(),  # without it the loader would draw from the network's generator
        )


@validated_class
class ClassificationDataModule(SplitDataModule):
    """A data set for classification; a subclass defines `load`. Arguments: `conf/data/base/classification.yaml`."""

    sampler: ClassSampler = "instance"
    train_metrics: Literal["evaluated", "running"] = "evaluated"
    validation_fraction: Share = 0.0
    validation_seed: Seed = 0

    @property
    def evaluated(self) -> tuple[str, ...]:
        asked = {"train": self.train_metrics == "evaluated", "validation": self.validation_fraction > 0, "test": True}
        return tuple(split for split, measured in asked.items() if measured)

    def training_sampler(self, division: BatchDivision) -> EpochSampler:
        epochs = (self.trainer.max_epochs if self.trainer else None) or 1
        if self.sampler == "progressive" and epochs < 0:
            raise ConfigurationError(
                f"data.sampler=progressive needs the last epoch, and trainer.max_epochs={epochs} names none; give "
                "trainer.max_epochs=NUMBER, or another sampler"
            )
        targets = self.data.train.targets.numpy()
        return TrainingSampler(targets, self.sampler, self.batch_size, self.seed, epochs, division)

    def network_arguments(self) -> dict[str, int]:
        return {"num_classes": len(self.data.class_names), **self.data.sizes}

    def module_arguments(self) -> dict[str, Any]:
        return {"num_classes": len(self.data.class_names), "shots": self.data.shots}

    def on_after_batch_transfer(self, batch: Batch, dataloader_idx: int) -> Batch:
        if self.data.augment is None or not self.trainer.training:
            return batch
        return batch._replace(inputs=self.data.augment(batch.inputs, batch.seeds))

    def split_for_validation(
        self, targets: Tensor | Indices, groups: Tensor | Indices | None = None
    ) -> tuple[Indices, Indices]:
        """Which training examples remain, and which are held out for validation. `load` learns only from the former.

        Each class keeps its share. Examples with the same number in `groups` stay together. A ConfigurationError says
        that a class would have no training example, or that there would be no validation example.
        """
        groups, fraction = range(len(targets)) if groups is None else groups, self.validation_fraction
        if not fraction:
            return np.arange(len(targets)), np.arange(0)
        setting, seed = "data.validation_fraction", self.validation_seed
        sides = stratified_group_split(targets, groups, fraction, seed, setting, classes_in_both=False)
        if not len(sides[1]):
            raise ConfigurationError(f"{setting}={fraction} is not allowed; it leaves no validation example")
        return sides

    def _complete(self, data: ClassificationData) -> ClassificationData:
        for split in ("train", "test"):
            targets, classes = getattr(data, split).targets, len(data.class_names)
            if not len(targets) or targets.min() < 0 or targets.max() >= classes:
                raise DataError(
                    f"{type(self).__name__}, {split}: there must be examples, and {classes} class names allow the "
                    f"class numbers 0 to {classes - 1}"
                )
        data = replace(data, content_hash=content_hash({"train": data.train, "test": data.test}, *data.class_names))
        if self.validation_fraction:
            data = data.with_validation(*self.split_for_validation(data.train.targets, data.groups))
        return replace(data, facts=data.facts | data.counts())
