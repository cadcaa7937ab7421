"""CIFAR-100 as one tensor of pixels, from a folder, the Hugging Face hub or torchvision's download."""

import io
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from experiments.data.augmentation import CropAndFlip
from experiments.data.base import LOCAL_DATA, ClassificationDataModule
from experiments.data.examples import ClassificationData, InMemory
from experiments.data.long_tail import ShotRule, exponential_tail
from experiments.data.splits import Indices, split_hash
from experiments.errors import DataError
from experiments.settings import NotNegative, Ratio, Seed, validated_class

HUB_NAME = "uoft-cs/cifar100"
FOLDER = "cifar100"
COLUMNS = ["img", "fine_label"]
CLASSES = 100
SIZES = {"train": 50_000, "test": 10_000}
SIDE = 32
FETCH_AGAIN = f"fetch it again, from {HUB_NAME} on the Hugging Face hub"

Images = NDArray[np.uint8]  # [n, 32, 32, 3]


@validated_class
class Cifar100DataModule(ClassificationDataModule):
    """CIFAR-100, all of it or with an exponential profile of training images; inputs are uint8 [n, 3, 32, 32].

    Arguments: `conf/data/cifar100.yaml`.
    Source: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009. Long-tailed: Cui et al., 2019.
    """

    folder: Path | None = None
    source: Literal["hub", "torchvision"] = "hub"
    augmentation: Literal["none", "standard"] = "none"
    padding: NotNegative = 0
    imbalance: Ratio = 1.0
    tail_seed: Seed = 0
    shots: ShotRule | None = None

    def load(self) -> ClassificationData:
        (images, labels), (test_images, test_labels) = (self._checked_side(side) for side in SIZES)
        kept = exponential_tail(labels, self.imbalance, self.tail_seed)
        ids = [*(f"train-{index}" for index in kept), *(f"test-{index}" for index in range(len(test_labels)))]
        return ClassificationData(
            train=_in_memory(images[kept], labels[kept]),
            test=_in_memory(test_images, test_labels),
            class_names=tuple(map(str, range(CLASSES))),
            split_hash=split_hash(ids, range(len(kept), len(ids))),
            augment=CropAndFlip(self.padding) if self.augmentation == "standard" else None,
            shot_rule=self.shots if self.imbalance > 1 else None,
            encode=_encode,
        )

    def _checked_side(self, side: str) -> tuple[Images, Indices]:
        """The images of one side and their labels."""
        if self.folder and (self.folder / FOLDER).is_dir():
            place = f"{self.folder / FOLDER}/{side}.parquet"
            images, labels = _decoded(_rows(place, side), place)
        elif self.folder or self.source == "torchvision":
            place = f"{self.folder or LOCAL_DATA}/cifar-100-python"
            images, labels = _torchvision(self.folder, side)
        else:
            place = f"{HUB_NAME} on the Hugging Face hub, {side}"
            images, labels = _decoded(_rows(place, side), place)
        if len(labels) != SIZES[side]:
            raise DataError(f"{place}: {len(labels)} images, {SIZES[side]} are expected; {FETCH_AGAIN}")
        classes, counts = np.unique(labels, return_counts=True)
        if not np.array_equal(classes, np.arange(CLASSES)) or (counts != SIZES[side] // CLASSES).any():
            raise DataError(f"{place}: the classes 0 to {CLASSES - 1} are not of equal size; {FETCH_AGAIN}")
        return images, labels


def _encode(content: bytes) -> tuple[Tensor, list[str]]:
    image = Image.open(io.BytesIO(content)).convert("RGB").resize((SIDE, SIDE))
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)[None], [f"resized to {SIDE} × {SIDE}"]


def _in_memory(images: Images, labels: Indices) -> InMemory:
    return InMemory(torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(labels))


def _rows(place: str, side: str) -> list[dict]:
    """The encoded images and the labels, of a file or of the hub."""
    try:
        if place.endswith(".parquet"):
            from pyarrow import parquet

            return parquet.read_table(place, columns=COLUMNS).to_pylist()
        from datasets import Image, load_dataset

        return list(load_dataset(HUB_NAME, split=side).cast_column("img", Image(decode=False)))
    except Exception as error:  # of several libraries, which share no base class
        raise DataError(
            f"{place}: cannot be read ({error}); {FETCH_AGAIN}, as {FOLDER}/{side}.parquet in the folder paths.data, "
            "or have it fetched with paths.data=null, and where the hub cannot be reached data.source=torchvision"
        ) from error


def _torchvision(folder: Path | None, side: str) -> tuple[Images, Indices]:
    from torchvision.datasets import CIFAR100

    try:
        found = CIFAR100(str(folder or LOCAL_DATA), train=side == "train", download=folder is None)
    except (OSError, RuntimeError) as error:
        raise DataError(
            f"{folder or LOCAL_DATA}: holds neither {FOLDER}/{side}.parquet nor torchvision's cifar-100-python, or it "
            f"cannot be fetched ({error}); name the folder that does with paths.data, or give paths.data=null"
        ) from error
    return found.data, np.array(found.targets, dtype=np.int64)


def _decoded(rows: list[dict], place: str) -> tuple[Images, Indices]:
    """The pixels and the labels of rows of encoded images."""
    for column in COLUMNS:
        if any(row.get(column) is None for row in rows):
            raise DataError(f"{place}: the column {column!r} is missing or has gaps; {FETCH_AGAIN}")
    images = np.empty((len(rows), SIDE, SIDE, 3), dtype=np.uint8)
    for number, row in enumerate(rows):
        try:
            image = Image.open(io.BytesIO(row["img"]["bytes"])).convert("RGB")
        except (OSError, SyntaxError) as error:
            raise DataError(f"{place}, row {number}: the image cannot be decoded ({error}); {FETCH_AGAIN}") from error
        if image.size != (SIDE, SIDE):
            raise DataError(
                f"{place}, row {number}: the image is of {image.size} pixels, not {SIDE} × {SIDE}; {FETCH_AGAIN}"
            )
        images[number] = np.asarray(image)
    return images, np.array([row["fine_label"] for row in rows], dtype=np.int64)
