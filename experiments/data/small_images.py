"""Data sets of images of one small size, decoded at the start and kept in memory as one tensor."""

import io
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from experiments.data.augmentation import CropAndFlip
from experiments.data.base import ClassificationDataModule
from experiments.data.examples import ClassificationData, InMemory
from experiments.data.long_tail import ShotRule, even_counts, exponential_tail, keep_counts
from experiments.data.progress import announced
from experiments.data.splits import Indices
from experiments.errors import ConfigurationError, DataError
from experiments.settings import AtLeastOne, NotNegative, Ratio, Seed, validated_class

Images = NDArray[np.uint8]  # [n, side, side, 3]


@validated_class
class SmallImageDataModule(ClassificationDataModule):
    """Small images, complete, long-tailed or cut to a balanced subset; inputs are uint8 [n, 3, side, side].

    A subclass defines the attributes below and `read`. Arguments: `conf/data/cifar100.yaml`.

    Attributes:
        classes: the number of classes.
        side: width and height of an image, in pixels.
        fetch_again: where to get the data set, for messages.
    """

    folder: Path | None = None
    augmentation: Literal["none", "standard"] = "none"
    padding: NotNegative = 0
    imbalance: Ratio = 1.0
    train_size: AtLeastOne | None = None
    tail_seed: Seed = 0
    shots: ShotRule | None = None

    classes: ClassVar[int]
    side: ClassVar[int]
    fetch_again: ClassVar[str]

    @abstractmethod
    def read(self, split: str) -> tuple[Images, Indices, str]:
        """The images of `train` or `test`, the class of each, and the place they come from, for messages."""

    def class_names(self) -> Sequence[str]:
        """The name of each class; their numbers, unless a subclass knows more."""
        return tuple(map(str, range(self.classes)))

    def load(self) -> ClassificationData:
        (images, labels), (test_images, test_labels) = map(self._checked, ("train", "test"))
        kept = self._kept(labels)
        return ClassificationData(
            train=_in_memory(images[kept], labels[kept]),
            test=_in_memory(test_images, test_labels),
            class_names=tuple(self.class_names()),
            augment=CropAndFlip(self.padding) if self.augmentation == "standard" else None,
            shot_rule=self.shots if self.imbalance > 1 else None,
            encode=self._encode,
        )

    def decode(self, rows: Sequence[dict[str, Any]], place: str, image: str, label: str) -> tuple[Images, Indices]:
        """The pixels and the classes of encoded images.

        Args:
            rows: a row an image; `{"bytes": …}` in the column `image`, the number of its class in the column `label`.
            place: where the rows lie, for messages.
            image, label: the names of the columns.

        Raises:
            DataError: a row cannot be used; names it.
        """
        images = np.empty((len(rows), self.side, self.side, 3), dtype=np.uint8)
        labels = np.empty(len(rows), dtype=np.int64)
        for number, row in enumerate(announced(rows, 1, len(rows), f"decoding {place}")):
            try:
                images[number] = self._pixels(row[image]["bytes"])
            except Exception as error:  # Pillow's decoders raise errors that share no base class
                raise DataError(
                    f"{place}, row {number}: the image cannot be decoded ({error}); {self.fetch_again}"
                ) from error
            if row[label] not in range(self.classes):
                raise DataError(
                    f"{place}, row {number}: {label} is {row[label]!r}, allowed are the whole numbers from 0 to "
                    f"{self.classes - 1}; {self.fetch_again}"
                )
            labels[number] = row[label]
        return images, labels

    def _pixels(self, encoded: bytes) -> Images:
        found = Image.open(io.BytesIO(encoded))
        if found.size != (self.side, self.side):
            raise ValueError(f"it has {found.width} × {found.height} pixels, not {self.side} × {self.side}")
        return np.asarray(found.convert("RGB"))

    def _checked(self, split: str) -> tuple[Images, Indices]:
        images, labels, place = self.read(split)
        if self.expected_examples:
            found, counts = np.unique(labels, return_counts=True)
            if not np.array_equal(found, np.arange(self.classes)) or (counts != counts[0]).any():
                raise DataError(
                    f"{place}: the classes 0 to {self.classes - 1} are not of equal size; {self.fetch_again}"
                )
        return images, labels

    def _kept(self, labels: Indices) -> Indices:
        """The indices of the training images that `imbalance` or `train_size` keeps."""
        if self.train_size is None:
            return exponential_tail(labels, self.imbalance, self.tail_seed)
        given = f"data.train_size={self.train_size}"
        if self.imbalance > 1:
            raise ConfigurationError(
                f"{given} is not allowed beside data.imbalance={self.imbalance:g}; give one of them"
            )
        if self.train_size < self.classes:
            raise ConfigurationError(
                f"{given} is not allowed; it must be at least {self.classes}, the number of classes"
            )
        try:
            return keep_counts(labels, even_counts(self.train_size, self.classes), self.tail_seed)
        except ValueError as error:
            raise ConfigurationError(f"{given} is not allowed: {error}") from error

    def _encode(self, content: bytes) -> tuple[Tensor, list[str]]:
        image = Image.open(io.BytesIO(content)).convert("RGB").resize((self.side, self.side))
        return torch.from_numpy(np.array(image)).permute(2, 0, 1)[None], [f"resized to {self.side} × {self.side}"]


def _in_memory(images: Images, labels: Indices) -> InMemory:
    return InMemory(torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(labels))
