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
from experiments.settings import validated_class


@validated_class
class TorchDatasetModule(ClassificationDataModule):
    """Two torch Datasets that give pairs of an input and a class number.

    An input is a tensor, an array, or a PIL image, which becomes uint8 [channels, height, width]. Random transforms get
    a seed for each example and epoch: a run repeats itself whatever the number of workers. Without `class_names` the
    names are `train.classes`, or else numbers.
    """

    train: Dataset[Any]
    test: Dataset[Any]
    class_names: list[str] | None = None

    def load(self) -> ClassificationData:
        train, test = (DatasetExamples(dataset, class_numbers(dataset)) for dataset in (self.train, self.test))
        names = self.class_names or getattr(self.train, "classes", None) or range(int(train.targets.max()) + 1)
        first, _, _ = train.read(torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
        found = described((train.targets, test.targets), first[0])
        return ClassificationData(train, test, tuple(map(str, names)), **found)


@dataclass(frozen=True)
class DatasetExamples:
    """The examples of a torch Dataset, whose class numbers are `targets`, int64 [n]."""

    dataset: Any
    targets: Tensor

    def read(self, indices: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor, list[str]]:
        with torch.random.fork_rng(devices=[]):
            inputs = [self._input(*one) for one in zip(indices.tolist(), seeds.tolist(), strict=True)]
        if len(shapes := {tuple(one.shape) for one in inputs}) > 1:
            some = " and ".join(map(str, [*shapes][:2]))
            raise DataError(
                f"{type(self.dataset).__name__}: inputs have different shapes, such as {some}; give the dataset a "
                "transform that resizes them"
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
                f"{type(self.dataset).__name__}: example {index} is a {type(value).__name__}; give the dataset a "
                "transform that makes tensors"
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
        raise DataError(f"{type(dataset).__name__}: each example must be a pair of an input and a class number")
    return numbers.long()
