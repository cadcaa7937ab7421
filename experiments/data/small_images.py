"""Data sets of images of one small size, decoded at the start and kept in memory as one tensor."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad
from tqdm import tqdm

from experiments.data.base import ClassificationDataModule
from experiments.data.examples import ClassificationData, InMemory
from experiments.data.hashes import SHOWN_AFTER
from experiments.data.hub import EncodedImage
from experiments.data.long_tail import ShotRule, exponential_tail, keep_counts
from experiments.data.pictures import picture_of
from experiments.data.randomness import uniform
from experiments.data.splits import Indices
from experiments.errors import ConfigurationError, reading
from experiments.settings import AtLeastOne, NotNegative, Ratio, Seed, validated_class

Images = NDArray[np.uint8]  # [n, side, side, 3]


@validated_class
class SmallImageDataModule(ClassificationDataModule):
    """Small images, complete, long-tailed or cut to a balanced subset; inputs are uint8 [n, 3, side, side].

    Arguments: `conf/data/cifar100.yaml`. A subclass defines `read`, the number of classes, the side of an image in
    pixels, the folder of its parquet files, and for messages where to get the data set.
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
    own_folder: ClassVar[str]  # of the parquet files

    @abstractmethod
    def read(self, split: str) -> tuple[Images, Indices, str]:
        """The images of `train` or `test`, the class of each, and the place they come from, for messages."""

    def class_names(self) -> Sequence[str]:
        """The name of each class; their numbers, unless a subclass knows more."""
        return tuple(map(str, range(self.classes)))

    def load(self) -> ClassificationData:
        splits = {}
        for split in ("train", "test"):
            images, labels, place = self.read(split)
            self.check_count(split, len(labels), f"{place}, {split}", self.fetch_again)
            kept = self._kept(labels) if split == "train" else slice(None)
            inputs = torch.from_numpy(images[kept]).permute(0, 3, 1, 2).contiguous()
            splits[split] = InMemory(inputs, torch.from_numpy(labels[kept]))
        return ClassificationData(
            **splits,
            class_names=tuple(self.class_names()),
            augment=CropAndFlip(self.padding) if self.augmentation == "standard" else None,
            shot_rule=self.shots if self.imbalance > 1 else None,
            encode=self._encode,
        )

    def decode(self, rows: Sequence[EncodedImage]) -> tuple[Images, Indices]:
        """The pixels and the classes of encoded images; a DataError names the place of a wrong one."""
        images = np.empty((len(rows), self.side, self.side, 3), dtype=np.uint8)
        labels = np.empty(len(rows), dtype=np.int64)
        for number, (encoded, label, place) in enumerate(tqdm(rows, "decoding images", **SHOWN_AFTER)):
            with reading(place, self.fetch_again):
                image = picture_of(encoded)
                if image.size != (self.side, self.side) or label not in range(self.classes):
                    raise ValueError(
                        f"{image.width} × {image.height} pixels of class {label}; {self.side} × {self.side} pixels of "
                        f"a class from 0 to {self.classes - 1} are expected"
                    )
                images[number], labels[number] = np.asarray(image), label
        return images, labels

    def unpacked(self, archive: str) -> Path | None:
        """The folder that an archive unpacks to, if it is below `folder`; some programs put it into another folder."""
        homes = [self.folder / name for name in (archive, self.own_folder, "")] if self.folder else []
        return next((home / archive for home in homes if (home / archive).is_dir()), None)

    def _kept(self, labels: Indices) -> Indices:
        """The indices of the training images that `imbalance` or `train_size` keeps."""
        if self.train_size is None:
            return exponential_tail(labels, self.imbalance, self.tail_seed)
        try:
            if self.imbalance > 1 or self.train_size < self.classes:
                raise ValueError(f"it must be at least {self.classes}, the number of classes, and data.imbalance=1")
            sizes = [len(part) for part in np.array_split(np.arange(self.train_size), self.classes)]
            return keep_counts(labels, sizes, self.tail_seed)
        except ValueError as error:
            raise ConfigurationError(f"data.train_size={self.train_size} is not allowed: {error}") from error

    def _encode(self, content: bytes) -> tuple[Tensor, list[str]]:
        image = picture_of(content).resize((self.side, self.side))
        return torch.from_numpy(np.array(image)).permute(2, 0, 1)[None], [f"resized to {self.side} × {self.side}"]


@dataclass(frozen=True)
class CropAndFlip:
    """A random crop of the image with `padding` zeros at each side, of its own size, mirrored with probability 1/2.

    It works on whole batches, but each image has its own seed.
    """

    padding: int

    def __call__(self, images: Tensor, seeds: Tensor) -> Tensor:
        """The changed images [n, channels, height, width]; `seeds` int64 [n] come from `sample_seeds`."""
        height, width = images.shape[-2:]
        choices = 2 * self.padding + 1
        down, right = ((uniform(seeds, stream) * choices).long() for stream in (0, 1))
        windows = pad(images, (self.padding,) * 4).unfold(2, height, 1).unfold(3, width, 1)
        cropped = windows[torch.arange(len(images), device=images.device), :, down, right]
        mirrored = uniform(seeds, 2) < 0.5
        return torch.where(mirrored[:, None, None, None], cropped.flip(-1), cropped)
