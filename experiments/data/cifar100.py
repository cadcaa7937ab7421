"""CIFAR-100 as one tensor of pixels, from a folder, the Hugging Face hub or torchvision's download."""

import io
import reprlib
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from experiments.data.augmentation import CropAndFlip
from experiments.data.base import ClassificationDataModule
from experiments.data.examples import ClassificationData, InMemory
from experiments.data.images import no_bombs, open_image
from experiments.data.local_files import LOCAL_DATA, check_is_file
from experiments.data.long_tail import ShotRule, even_counts, exponential_tail, keep_counts
from experiments.data.splits import Indices
from experiments.errors import ConfigurationError, DataError
from experiments.settings import AtLeastOne, NotNegative, Ratio, Seed, validated_class

HUB_NAME = "uoft-cs/cifar100"
FOLDER = "cifar100"
COLUMNS = ["img", "fine_label"]
CLASSES = 100
SIDES = ("train", "test")
SIDE = 32
FETCH_AGAIN = f"fetch it again, from {HUB_NAME} on the Hugging Face hub"

Images = NDArray[np.uint8]  # [n, 32, 32, 3]


@validated_class
class Cifar100DataModule(ClassificationDataModule):
    """CIFAR-100, complete, long-tailed or cut to a balanced subset; inputs are uint8 [n, 3, 32, 32].

    Arguments: `conf/data/cifar100.yaml`.
    Source: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009. Long-tailed: Cui et al., 2019.
    """

    folder: Path | None = None
    source: Literal["hub", "torchvision"] = "hub"
    augmentation: Literal["none", "standard"] = "none"
    padding: NotNegative = 0
    imbalance: Ratio = 1.0
    train_size: AtLeastOne | None = None
    tail_seed: Seed = 0
    shots: ShotRule | None = None

    def load(self) -> ClassificationData:
        (images, labels), (test_images, test_labels) = (self._checked_side(side) for side in SIDES)
        kept = self._kept(labels)
        return ClassificationData(
            train=_in_memory(images[kept], labels[kept]),
            test=_in_memory(test_images, test_labels),
            class_names=tuple(map(str, range(CLASSES))),
            augment=CropAndFlip(self.padding) if self.augmentation == "standard" else None,
            shot_rule=self.shots if self.imbalance > 1 else None,
            encode=_encode,
        )

    def _kept(self, labels: Indices) -> Indices:
        """The indices of the training images that `imbalance` or `train_size` keeps."""
        if self.train_size is None:
            return exponential_tail(labels, self.imbalance, self.tail_seed)
        given = f"data.train_size={self.train_size}"
        if self.imbalance > 1:
            raise ConfigurationError(
                f"{given} is not allowed beside data.imbalance={self.imbalance:g}; give one of them"
            )
        if self.train_size < CLASSES:
            raise ConfigurationError(f"{given} is not allowed; it must be at least {CLASSES}, the number of classes")
        try:
            return keep_counts(labels, even_counts(self.train_size, CLASSES), self.tail_seed)
        except ValueError as error:
            raise ConfigurationError(f"{given} is not allowed: {error}") from error

    def _checked_side(self, side: str) -> tuple[Images, Indices]:
        """The images of one side and their labels."""
        if self.folder and (self.folder / FOLDER).is_dir():
            place = f"{self.folder / FOLDER}/{side}.parquet"
            images, labels = self._decoded(_rows(place, side), place, side)
        elif self.folder or self.source == "torchvision":
            place = f"{self.folder or LOCAL_DATA}/cifar-100-python"
            images, labels = _torchvision(self.folder, side)
            self.check_count(side, len(labels), place, FETCH_AGAIN)
        else:
            place = f"{HUB_NAME} on the Hugging Face hub, {side}"
            images, labels = self._decoded(_rows(place, side), place, side)
        if self.expected_examples:
            classes, counts = np.unique(labels, return_counts=True)
            if not np.array_equal(classes, np.arange(CLASSES)) or (counts != counts[0]).any():
                raise DataError(f"{place}: the classes 0 to {CLASSES - 1} are not of equal size; {FETCH_AGAIN}")
        return images, labels

    def _decoded(self, rows: list[dict], place: str, side: str) -> tuple[Images, Indices]:
        """The pixels and the labels of rows of encoded images."""
        self.check_count(side, len(rows), place, FETCH_AGAIN)
        images = np.empty((len(rows), SIDE, SIDE, 3), dtype=np.uint8)
        labels = np.empty(len(rows), dtype=np.int64)
        with no_bombs():  # once around the loop: entering it takes half as long as opening an image
            for number, row in enumerate(rows):
                images[number], labels[number] = _example(row, f"{place}, row {number}")
        return images, labels


def _example(row: dict, place: str) -> tuple[Images, int]:
    encoded, label = row.get("img"), row.get("fine_label")
    content = encoded.get("bytes") if isinstance(encoded, dict) else None
    if not isinstance(content, bytes):
        raise DataError(f"{place}: 'img' holds no encoded image; {FETCH_AGAIN}")
    if type(label) is not int or not 0 <= label < CLASSES:
        raise DataError(
            f"{place}: fine_label is {reprlib.repr(label)}, allowed are the whole numbers from 0 to {CLASSES - 1}; "
            f"{FETCH_AGAIN}"
        )
    try:
        image = Image.open(io.BytesIO(content))
        if image.size != (SIDE, SIDE):
            raise ValueError(f"it has {image.width} × {image.height} pixels, not {SIDE} × {SIDE}")
        return np.asarray(image.convert("RGB")), label
    except Exception as error:  # Pillow's decoders raise errors that share no base class
        raise DataError(f"{place}: the image cannot be decoded ({error}); {FETCH_AGAIN}") from error


def _encode(content: bytes) -> tuple[Tensor, list[str]]:
    image = open_image(content).convert("RGB").resize((SIDE, SIDE))
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)[None], [f"resized to {SIDE} × {SIDE}"]


def _in_memory(images: Images, labels: Indices) -> InMemory:
    return InMemory(torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(labels))


def _rows(place: str, side: str) -> list[dict]:
    """The encoded images and the labels, of a file or of the hub."""
    try:
        if place.endswith(".parquet"):
            from pyarrow import parquet

            check_is_file(Path(place))
            return parquet.read_table(place, columns=COLUMNS).to_pylist()
        from datasets import Image, load_dataset

        return list(load_dataset(HUB_NAME, split=side).cast_column("img", Image(decode=False)))
    except Exception as error:  # errors of several libraries share no base class
        raise DataError(
            f"{place}: cannot be read ({error}); {FETCH_AGAIN}, as {FOLDER}/{side}.parquet in the folder paths.data, "
            "or have it fetched with paths.data=null, and where the hub cannot be reached data.source=torchvision"
        ) from error


def _torchvision(folder: Path | None, side: str) -> tuple[Images, Indices]:
    from torchvision.datasets import CIFAR100

    try:
        if folder is not None:
            for file in (side, "meta"):
                check_is_file(folder / CIFAR100.base_folder / file)
        found = CIFAR100(str(folder or LOCAL_DATA), train=side == "train", download=folder is None)
    except Exception as error:  # the pickled file or the download can raise any error
        raise DataError(
            f"{folder or LOCAL_DATA}: holds neither {FOLDER}/{side}.parquet nor torchvision's cifar-100-python, or it "
            f"cannot be fetched ({error}); name the folder that does with paths.data, or give paths.data=null"
        ) from error
    return found.data, np.array(found.targets, dtype=np.int64)
