"""Any two torch Datasets of inputs and class numbers, such as those of torchvision, as a data module."""

from dataclasses import dataclass
from typing import Any

import torch
from PIL.Image import Image
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.transforms.v2.functional import pil_to_tensor

from experiments.data.base import ClassificationDataModule
from experiments.data.examples import ClassificationData, described
from experiments.errors import DataError
from experiments.settings import validated


class TorchDatasetModule(ClassificationDataModule):
    """Two torch Datasets that give pairs of an input and a class number.

    An input is a tensor, an array, or a PIL image, which becomes uint8 [channels, height, width]. Random transforms get
    a seed for each example and epoch: a run repeats itself whatever the number of workers.

    Args:
        train, test: the datasets.
        class_names: the name of each class; None takes `train.classes`, or else numbers.
        **batches: as for `ClassificationDataModule`.
    """

    @validated
    def __init__(
        self, *, train: Dataset[Any], test: Dataset[Any], class_names: list[str] | None = None, **batches: Any
    ) -> None:
        super().__init__(**batches)
        self.datasets, self.class_names = (train, test), class_names

    def load(self) -> ClassificationData:
        train, test = (DatasetExamples(dataset, class_numbers(dataset)) for dataset in self.datasets)
        names = self.class_names or getattr(self.datasets[0], "classes", None) or range(int(train.targets.max()) + 1)
        first, _, _ = train.read(torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
        described_by = described(train, test, (train.targets, test.targets), first[0])
        return ClassificationData(train, test, tuple(map(str, names)), **described_by)


@dataclass(frozen=True)
class DatasetExamples:
    """The examples of a torch Dataset.

    Args:
        dataset: gives pairs of an input and a class number.
        targets: the class numbers, int64 [n].
    """

    dataset: Any
    targets: Tensor

    def read(self, indices: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor, list[str]]:
        numbered = zip(indices.tolist(), seeds.tolist(), strict=True)
        with torch.random.fork_rng(devices=[]):
            inputs = [self._input(index, seed) for index, seed in numbered]
        if len(shapes := {tuple(one.shape) for one in inputs}) > 1:
            some = " and ".join(map(str, [*shapes][:2]))
            raise DataError(
                f"{_name(self.dataset)}: inputs have different shapes, such as {some}; give the dataset a transform "
                "that resizes them"
            )
        return torch.stack(inputs) if inputs else torch.empty(0), self.targets[indices], []

    def _input(self, index: int, seed: int) -> Tensor:
        torch.default_generator.manual_seed(seed)
        value = self.dataset[index][0]
        if isinstance(value, Image):
            return pil_to_tensor(value)
        try:
            return torch.as_tensor(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise DataError(
                f"{_name(self.dataset)}: example {index} is a {type(value).__name__}; give the dataset a transform "
                "that makes tensors"
            ) from error


def class_numbers(dataset: Any) -> Tensor:
    """The class number of each example, int64 [n]: `targets` where the dataset has them, else all examples are read.

    Raises:
        DataError: the second of a pair is no class number.
    """
    found = getattr(dataset, "targets", None)
    if found is None or getattr(dataset, "target_transform", None) is not None:
        found = [dataset[index][1] for index in range(len(dataset))]
    numbers = torch.as_tensor(found)
    if numbers.is_floating_point() or numbers.dim() != 1:
        raise DataError(f"{_name(dataset)}: each example must be a pair of an input and a class number")
    return numbers.long()


def _name(dataset: Any) -> str:
    return type(dataset).__name__
