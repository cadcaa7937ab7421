"""Photographs of any size and format, decoded and cut to one size when they are read."""

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from torch import Tensor
from torch.utils.data import default_collate
from torchvision.transforms import v2
from torchvision.transforms.v2.functional import pil_to_tensor

from experiments.data.contents import image_digest, tensor_digest
from experiments.data.images import open_image
from experiments.data.local_files import file_stamp, printable, read_file
from experiments.data.splits import Indices

Transform = Callable[[Tensor], Tensor]
MOST_STRETCHED = 200  # largest ratio of the longer to the shorter side; resizing makes the image that many times larger

# Names are one array, and rows stay in their file: a Python object for each of a million images would be copied into
# the memory of every worker as soon as it is looked at.


@dataclass(frozen=True)
class ImageFiles:
    """Images in files of the folder `place`: their paths below it, bytes [n]."""

    place: str
    names: NDArray[np.bytes_]

    def name(self, index: int) -> str:
        return os.fsdecode(self.names[index])

    def encoded(self, index: int) -> bytes:
        return read_file(Path(self.place, self.name(index)))

    def stamp(self, index: int) -> tuple[str, int]:
        return file_stamp(os.path.join(self.place, self.name(index)))

    def kept(self, indices: Indices) -> "ImageFiles":
        return replace(self, names=self.names[indices])


@dataclass(frozen=True)
class ImageRows:
    """Images in some rows [n] of a table of the `datasets` package: a split of the data set `place`, left encoded."""

    place: str
    split: str
    table: Any
    numbers: Indices

    def name(self, index: int) -> str:
        return f"{self.split}, row {self.numbers[index]}"

    def encoded(self, index: int) -> bytes:
        return self.table[int(self.numbers[index])]["image"]["bytes"]

    def stamp(self, index: int) -> tuple[str, int]:
        return f"{self.files} {self.numbers[index]}", self.table.data.nbytes // len(self.table) if self.files else 0

    @functools.cached_property
    def files(self) -> str:
        """The stamps of the table's files; empty for a table in memory."""
        return "".join(file_stamp(file["filename"])[0] for file in self.table.cache_files)

    def kept(self, indices: Indices) -> "ImageRows":
        return replace(self, numbers=self.numbers[indices])


@dataclass(frozen=True)
class Photographs:
    """Images that are decoded to RGB, transformed, and left out where they cannot be decoded.

    Attributes:
        images: where they lie.
        targets: class indices, int64 [n].
        transform: from uint8 [3, height, width] to uint8 [3, size, size]. Its random numbers come from torch's default
            generator, which has the image's own seed during the transform and its old state afterwards.
    """

    images: ImageFiles | ImageRows
    targets: Tensor
    transform: Transform

    def read(self, indices: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor, list[str]]:
        read, pixels, unreadable = [], [], []
        with torch.random.fork_rng(devices=[]):
            for index, seed in zip(indices.tolist(), seeds.tolist(), strict=True):
                try:
                    image = decoded(self.images.encoded(index))
                except Exception as error:  # Pillow's decoders raise errors that share no base class
                    name = printable(f"{self.images.place}/{self.images.name(index)}")
                    unreadable.append(f"{name}: {_reason(error)}")
                    continue
                torch.default_generator.manual_seed(seed)  # seeds only the processor's generator
                pixels.append(self.transform(image))
                read.append(index)
        # In a worker this stacks the images directly in the memory that the training process reads.
        inputs = default_collate(pixels) if pixels else torch.empty(0, 3, 0, 0, dtype=torch.uint8)
        return inputs, self.targets[read], unreadable

    def digest(self) -> bytes:
        return image_digest(self.images, len(self.targets), self.images.place) + tensor_digest(self.targets)


def training_transform(size: int, least_area: float) -> Transform:
    """A random part of the image, resized to `size` × `size` pixels, and mirrored with probability one half.

    The part has at least the share `least_area` of the image's area; the ratio of its sides is 3:4 to 4:3.

    Source: Szegedy et al., Going Deeper with Convolutions, 2015, section 6.
    """
    return v2.Compose([v2.RandomResizedCrop(size, scale=(least_area, 1.0)), v2.RandomHorizontalFlip()])


def measuring_transform(size: int, shorter_side: int) -> Transform:
    """The middle `size` × `size` pixels of the image whose shorter side is resized to `shorter_side` pixels.

    Source: He et al., Deep Residual Learning, 2016, section 3.4.
    """
    return v2.Compose([v2.Resize(shorter_side), v2.CenterCrop(size)])


def decoded(encoded: bytes) -> Tensor:
    """The pixels of an image in any of Pillow's formats as RGB, uint8 [3, height, width].

    Transparency and the camera's note of the orientation are ignored.

    Raises:
        Exception: as `open_image`; or the image is incomplete, or its sides differ too much.
    """
    image = open_image(encoded)
    if max(image.size) > MOST_STRETCHED * min(image.size):
        raise ValueError(f"{image.width} × {image.height} pixels; at most {MOST_STRETCHED} times as long as wide")
    if image.mode in ("I", "F"):
        raise ValueError(f"pixels of mode {image.mode}, whose range is not known")
    if image.mode.startswith("I;16"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))  # Pillow would cut off values above 255
    if image.mode == "P":
        image = image.convert("RGBA")  # a palette may hold transparent colours, which RGB cannot take at once
    return pil_to_tensor(image if image.mode == "RGB" else image.convert("RGB"))


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "no image of a known format"  # Pillow's own words hold a memory address
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
