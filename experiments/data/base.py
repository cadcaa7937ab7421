"""What every data set of the suite is: a LightningDataModule that knows its splits."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import lightning.pytorch as L
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from experiments.data.examples import Batch, BatchIndices, ClassificationData, Examples
from experiments.data.samplers import (
    FEWEST_EXAMPLES,
    BatchDivision,
    ClassSampler,
    EpochSampler,
    TrainingSampler,
    evaluation_batches,
)
from experiments.data.unreadable import Unreadable
from experiments.errors import ConfigurationError, DataError, UserError
from experiments.settings import AtLeastOne, NotNegative, Seed, Share, validated

Batches = EpochSampler | Sequence[BatchIndices]
Loader = Collection[Batch]
LOCAL_DATA = Path("data")  # where a data set is fetched to; git ignores it


class SplitData(Protocol):
    """A data set with its splits: `ClassificationData` or `TranslationData`."""

    split_hash: str
    facts: dict[str, int | float | str]
    sizes: dict[str, int]
    unreadable_most: int


class BatchReader(Dataset[Batch]):
    """Reads the examples that a sampler chooses.

    Args:
        examples: of one split.
        split: the split whose metrics count the batches; None for none.
    """

    def __init__(self, examples: Examples, split: str | None) -> None:
        self.examples, self.split = examples, split

    def __getitem__(self, chosen: BatchIndices) -> Batch:
        inputs, targets, unreadable = self.examples.read(chosen.indices, chosen.seeds)
        return Batch(inputs, targets, *chosen, unreadable, self.split)


class InProcessLoader:
    """Batches read in this process: what a DataLoader without workers gives, in less time.

    Args:
        reader: reads the examples.
        sampler: chooses them; Lightning calls its `set_epoch`.
    """

    batch_sampler = None  # Lightning asks for it beside the sampler

    def __init__(self, reader: BatchReader, sampler: Batches) -> None:
        self.reader, self.sampler = reader, sampler

    def __iter__(self) -> Iterator[Batch]:
        return map(self.reader.__getitem__, self.sampler)

    def __len__(self) -> int:
        return len(self.sampler)


class SplitDataModule(L.LightningDataModule, ABC):
    """Batches of the splits of one data set, the same for the same seed and epoch whatever processes read them.

    After each training epoch the splits of `evaluated` are measured. The number of a run's epoch reaches the training
    sampler through Lightning's `set_epoch`.

    Args:
        seed: the training seed, which decides the order of the examples.
        batch_size: examples, or target tokens, of one optimizer step, over all devices and passes.
        evaluation_batch_size: examples at a time when measuring.
        num_workers: processes that read and decode ahead; they change no result.

    Attributes:
        data: the splits, once `setup` has run.
    """

    evaluated: tuple[str, ...]
    data: Any = None

    @validated
    def __init__(
        self, *, seed: Seed, batch_size: AtLeastOne, evaluation_batch_size: AtLeastOne, num_workers: NotNegative = 0
    ) -> None:
        super().__init__()
        self.seed, self.num_workers = seed, num_workers
        self.batch_size, self.evaluation_batch_size = batch_size, evaluation_batch_size
        self.unreadable = Unreadable(0)

    @abstractmethod
    def load(self) -> Any:
        """The splits of the data set; fetches what is not there.

        Raises:
            DataError: the data set cannot be used, naming the place and the remedy.
        """

    @abstractmethod
    def training_sampler(self, division: BatchDivision) -> EpochSampler:
        """The batches of a training epoch."""

    @abstractmethod
    def network_arguments(self) -> dict[str, int]:
        """Sizes that the data give a network, by the name of the argument."""

    @abstractmethod
    def module_arguments(self) -> dict[str, Any]:
        """What the data give the LightningModule, by the name of the argument."""

    def evaluation_order(self, split: str) -> Tensor:
        """The order in which the examples of a split are measured, int64 [n]."""
        return torch.arange(len(getattr(self.data, split).targets))

    def encode(self, file: Path) -> tuple[Tensor, list[str]]:
        """Inputs [n, ...] for a file of the user's own, and a name for each.

        Raises:
            UserError: this data set has no such form.
            DataError: the file cannot be read.
        """
        if getattr(self.data, "encode", None) is None:
            raise UserError(f"{type(self).__name__} cannot read inputs from a file")
        try:
            content = file.read_bytes()
        except OSError as error:
            raise DataError(f"{file}: cannot be read ({error.strerror})") from error
        try:
            inputs, names = self.data.encode(content)
        except Exception as error:  # the decoders of text and images fail with errors that share no base class
            raise DataError(f"{file}: cannot be read as input of {type(self).__name__} ({error})") from error
        return inputs, names

    def prepare_data(self) -> None:
        self.setup()

    def setup(self, stage: str | None = None) -> None:
        if self.data is None:
            self.data = self._checked(self.load())
        self.unreadable.most = self.data.unreadable_most

    def train_dataloader(self) -> Loader:
        split = None if "train" in self.evaluated else "train"
        sampler = self.training_sampler(self._division())
        if self.trainer is not None:  # Lightning reads the first batch of a resumed run before it calls `set_epoch`
            sampler.set_epoch(self.trainer.fit_loop.epoch_progress.current.processed)
        return self._loader(self.data.train, sampler, split)

    def val_dataloader(self) -> list[Loader]:
        return [self._evaluation_loader(split) for split in self.evaluated]

    def test_dataloader(self) -> Loader:
        return self._evaluation_loader("test")

    def predict_dataloader(self) -> Loader:
        return self._evaluation_loader("test")

    def on_before_batch_transfer(self, batch: Batch, dataloader_idx: int) -> Batch:
        if batch.unreadable:
            self.unreadable.add(batch.unreadable)
            if self.trainer.training and len(batch.targets) < FEWEST_EXAMPLES:
                raise DataError(f"hardly an example of a batch can be read, the first of them {batch.unreadable[0]}")
        return batch

    def state_dict(self) -> dict[str, list[str]]:
        return {"unreadable": sorted(self.unreadable.names)}

    def load_state_dict(self, state: dict[str, list[str]]) -> None:
        self.unreadable.names = set(state["unreadable"])

    def _checked(self, data: Any) -> Any:
        """The loaded data as they are used; raises where they cannot be."""
        return data

    def _division(self) -> BatchDivision:
        if (trainer := self.trainer) is None:
            return BatchDivision()
        return BatchDivision(trainer.world_size, trainer.global_rank, trainer.accumulate_grad_batches)

    def _evaluation_loader(self, split: str) -> Loader:
        batches = evaluation_batches(self.evaluation_order(split), self.evaluation_batch_size, self._division())
        return self._loader(getattr(self.data, split), batches, split)

    def _loader(self, examples: Examples, batches: Batches, split: str | None) -> Loader:
        reader = BatchReader(examples, split)
        pinned = self.trainer is not None and self.trainer.strategy.root_device.type == "cuda"
        if not self.num_workers and not pinned:
            return InProcessLoader(reader, batches)
        return DataLoader(
            reader,
            sampler=batches,  # type: ignore[arg-type]  # whole batches, not single examples
            batch_size=None,
            num_workers=self.num_workers,
            persistent_workers=self.num_workers > 0,
            pin_memory=pinned,
            generator=torch.Generator(),  # without it the loader would draw from the generator of the network
        )


class ClassificationDataModule(SplitDataModule):
    """A data set for classification; a subclass gives `load`.

    Args:
        sampler: shares of the classes in training: `instance`, `square_root`, `class_balanced` or `progressive`.
        train_metrics: `evaluated` measures the training split after each epoch, `running` while it trains.
        validation_fraction: share of the training examples taken out for validation, on which settings may be chosen.
        validation_seed: seed of that choice, apart from the training seed.
        **batches: as for `SplitDataModule`.
    """

    data: ClassificationData | None = None

    @validated
    def __init__(
        self,
        *,
        sampler: ClassSampler = "instance",
        train_metrics: Literal["evaluated", "running"] = "evaluated",
        validation_fraction: Share = 0.0,
        validation_seed: Seed = 0,
        **batches: Any,
    ) -> None:
        super().__init__(**batches)
        self.sampler = sampler
        self.validation_fraction, self.validation_seed = validation_fraction, validation_seed
        validation = ("validation",) if validation_fraction else ()
        self.evaluated = (*(("train",) if train_metrics == "evaluated" else ()), *validation, "test")

    @abstractmethod
    def load(self) -> ClassificationData:
        """The training and test examples; fetches what is not there."""

    def training_sampler(self, division: BatchDivision) -> EpochSampler:
        epochs = (self.trainer.max_epochs if self.trainer else None) or 1
        if self.sampler == "progressive" and epochs < 1:
            raise ConfigurationError(
                f"data.sampler=progressive needs the number of epochs, but trainer.max_epochs={epochs} gives none"
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

    def _checked(self, data: ClassificationData) -> ClassificationData:
        for split in ("train", "test"):
            self._check_classes(data, split)
        try:
            return data.with_validation(self.validation_fraction, self.validation_seed)
        except ValueError as error:
            raise ConfigurationError(f"data.validation_fraction={self.validation_fraction}: {error}") from error

    def _check_classes(self, data: ClassificationData, split: str) -> None:
        targets, classes = getattr(data, split).targets, len(data.class_names)
        if not len(targets):
            raise DataError(f"{type(self).__name__}: the {split} split has no example")
        if targets.dtype != torch.int64 or targets.dim() != 1:
            raise DataError(
                f"{type(self).__name__}: the {split} targets are {targets.dtype} {list(targets.shape)}, but must be "
                "one class number for each example, torch.int64 [n]"
            )
        if int(targets.min()) < 0 or int(targets.max()) >= classes:
            raise DataError(
                f"{type(self).__name__}: the {split} split has class numbers from {int(targets.min())} to "
                f"{int(targets.max())}, but {classes} class names allow 0 to {classes - 1}"
            )
