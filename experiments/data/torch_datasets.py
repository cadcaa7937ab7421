"""Any two torch Datasets of inputs and class numbers, such as torchvision's, as a data module."""

import struct
from bisect import bisect_right
from dataclasses import dataclass
from os.path import getsize
from typing import Any

import numpy as np
import torch
from lightning.pytorch.utilities.seed import isolate_rng
from PIL.Image import DecompressionBombError, Image
from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset, Subset, default_collate
from torchvision.datasets import DatasetFolder
from torchvision.datasets.folder import default_loader
from torchvision.transforms.v2.functional import pil_to_tensor

from experiments.data.base import ClassificationDataModule
from experiments.data.examples import ClassificationData, sizes_of
from experiments.data.hashes import digest_by_reading, folder_digest, tensor_digest
from experiments.data.pictures import LARGER_RANGES, in_rgb, read_picture
from experiments.data.randomness import seed_generators
from experiments.errors import DataError, reading
from experiments.settings import validated_class

# Errors that Pillow and similar libraries raise for damaged files; any other error is the dataset's own.
DAMAGE = (OSError, SyntaxError, EOFError, struct.error, DecompressionBombError)


@validated_class
class TorchDatasetModule(ClassificationDataModule):
    """Two torch Datasets that give pairs of an input and a class number.

    An input is a tensor, an array, or a PIL image, which becomes a tensor [channels, height, width]: a grey one of its
    own values, also above 255, any other in RGB. The pictures of a folder are read by the rules of data/README.md.
    Random transforms are seeded for each example and epoch, so results do not depend on the number of workers. Without
    `class_names` the names are `train.classes`, or else numbers.
    """

    train: Dataset[Any]
    test: Dataset[Any]
    class_names: list[str] | None = None

    def load(self) -> ClassificationData:
        for dataset in (self.train, self.test):
            _read_by_our_rules(dataset)
        train, test = (DatasetExamples(dataset, class_numbers(dataset)) for dataset in (self.train, self.test))
        names = self.class_names or getattr(self.train, "classes", None) or range(int(train.targets.max()) + 1)
        first, _ = train.read(torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
        return ClassificationData(train, test, tuple(map(str, names)), sizes=sizes_of(first[0]))


@dataclass(frozen=True)
class DatasetExamples:
    """The examples of a torch Dataset, whose class numbers are `targets`, int64 [n]."""

    dataset: Any
    targets: Tensor

    def read(self, indices: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor]:
        with isolate_rng(include_cuda=False):
            inputs = [self._input(*one) for one in zip(indices.tolist(), seeds.tolist(), strict=True)]
        # In a worker this stacks the inputs directly in the memory that the training process reads.
        return default_collate(inputs) if inputs else torch.empty(0), self.targets[indices]

    def digest(self) -> bytes:
        """The SHA-256 of the dataset: its files' names and sizes, its array `data`, or else its examples."""
        if isinstance(self.dataset, DatasetFolder):
            size = getattr(self.dataset, "size", getsize)  # of an image that is no file
            paths = [path for path, _ in self.dataset.samples]
            return folder_digest(paths, str(self.dataset.root), size) + tensor_digest(self.targets)
        held = getattr(self.dataset, "data", None)
        if isinstance(held, np.ndarray) and held.dtype.kind in "biuf":
            held = torch.from_numpy(np.ascontiguousarray(held))
        if isinstance(held, Tensor) and held.shape[:1] == self.targets.shape:
            return tensor_digest(held, self.targets)
        return digest_by_reading(self)

    def _input(self, index: int, seed: int) -> Tensor:
        seed_generators(seed)
        value = _example(self.dataset, index)[0]
        if not isinstance(value, Image):
            return torch.as_tensor(value)
        is_grey = value.mode == "L" or value.mode.startswith(LARGER_RANGES)
        with reading(_place(self.dataset, index), "or let the data set give a tensor", (OSError, ValueError)):
            return pil_to_tensor(value if is_grey else in_rgb(value))


def _read_by_our_rules(dataset: Any) -> None:
    """Let the folders of pictures in a dataset, such as those below a Subset, read by the rules of data/README.md."""
    if getattr(dataset, "loader", None) is default_loader:
        dataset.loader = read_picture
    parts = dataset.datasets if isinstance(dataset, ConcatDataset) else []
    for part in [dataset.dataset] if isinstance(dataset, Subset) else parts:
        _read_by_our_rules(part)


def class_numbers(dataset: Any) -> Tensor:
    """The class number of each example, int64 [n]: `targets` where the dataset has them, else all examples are read."""
    found = getattr(dataset, "targets", None)
    if found is None or getattr(dataset, "target_transform", None) is not None:
        found = [_example(dataset, index)[1] for index in range(len(dataset))]
    numbers = torch.as_tensor(found)
    if numbers.dtype.is_floating_point or numbers.dtype == torch.bool or numbers.dim() != 1:
        raise DataError(f"{type(dataset).__name__}: each example must be a pair of an input and a class number")
    return numbers.long()


def _example(dataset: Any, index: int) -> Any:
    with reading(_place(dataset, index), "restore its file", DAMAGE):
        return dataset[index]


def _place(dataset: Any, index: int) -> str:
    """The name of an example; of a part of a data set the name that it has there."""
    if isinstance(dataset, Subset):
        return _place(dataset.dataset, dataset.indices[index])
    if isinstance(dataset, ConcatDataset):
        part = bisect_right(dataset.cumulative_sizes, index)
        return _place(dataset.datasets[part], index - [0, *dataset.cumulative_sizes][part])
    file = f", {dataset.samples[index][0]}" if isinstance(dataset, DatasetFolder) else ""
    return f"{type(dataset).__name__}, example {index}{file}"
