"""CIFAR-100 as one tensor of pixels, from a folder, the Hugging Face hub or torchvision's download."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from experiments.data.augmentation import CropAndFlip
from experiments.data.base import LOCAL_DATA, ClassificationDataModule
from experiments.data.examples import ClassificationData, InMemory
from experiments.data.long_tail import ShotRule, exponential_counts, keep_counts
from experiments.data.splits import split_hash
from experiments.errors import DataError
from experiments.settings import NotNegative, Ratio, Seed, validated

HUB_NAME = "uoft-cs/cifar100"
FOLDER = "cifar100"
COLUMNS = ("img", "fine_label")
CLASSES = 100
SIZES = {"train": 50_000, "test": 10_000}
SIDE = 32
FETCH_AGAIN = f"fetch it again, from {HUB_NAME} on the Hugging Face hub"

Images = NDArray[np.uint8]  # [n, 32, 32, 3]
Labels = NDArray[np.int64]


class Cifar100DataModule(ClassificationDataModule):
    """CIFAR-100, all of it or with an exponential profile of training images; inputs are uint8 [n, 3, 32, 32].

    Args:
        folder: folder that holds cifar100/train.parquet and test.parquet, or torchvision's cifar-100-python; None
            fetches the set from `source`.
        source: `hub` or `torchvision`.
        augmentation: `none`, or `standard`: a random crop of the padded image, and a mirror image every other time.
        padding: pixels added at each side before the crop.
        imbalance: ratio of the largest to the smallest training class; 1 keeps all images.
        tail_seed: seed of the images that a smaller class keeps.
        shots: groups of classes by their training images, where they differ in number.
        **batches: as for `ClassificationDataModule`.

    Source: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009. Long-tailed: Cui et al., 2019.
    """

    @validated
    def __init__(
        self,
        *,
        folder: Path | None = None,
        source: Literal["hub", "torchvision"] = "hub",
        augmentation: Literal["none", "standard"] = "none",
        padding: NotNegative = 0,
        imbalance: Ratio = 1.0,
        tail_seed: Seed = 0,
        shots: ShotRule | None = None,
        **batches: Any,
    ) -> None:
        super().__init__(**batches)
        self._arguments = folder, source, padding if augmentation == "standard" else None, imbalance, tail_seed, shots

    def load(self) -> ClassificationData:
        return _load(*self._arguments)


def _load(
    folder: Path | None, source: str, padding: int | None, imbalance: float, tail_seed: int, shots: ShotRule | None
) -> ClassificationData:
    (images, labels), (test_images, test_labels) = (_read(folder, source, split) for split in SIZES)
    long_tailed = imbalance > 1
    counts = np.bincount(labels, minlength=CLASSES).tolist()
    kept = np.arange(len(labels))
    if long_tailed:
        counts = exponential_counts(max(counts), CLASSES, imbalance)
        kept = keep_counts(labels, counts, tail_seed)
    groups = shots.groups(counts) if shots and long_tailed else None
    ids = [*(f"train-{index}" for index in kept), *(f"test-{index}" for index in range(len(test_labels)))]
    return ClassificationData(
        train=_in_memory(images[kept], labels[kept]),
        test=_in_memory(test_images, test_labels),
        class_names=tuple(map(str, range(CLASSES))),
        split_hash=split_hash(ids, range(len(kept), len(ids))),
        facts={
            "train_size": len(kept),
            "test_size": len(test_labels),
            **(shots.facts(counts) if groups else {}),
        },
        augment=None if padding is None else CropAndFlip(padding),
        shots=groups,
        encode=_encode,
    )


def _encode(content: bytes) -> tuple[Tensor, list[str]]:
    image = Image.open(io.BytesIO(content)).convert("RGB").resize((SIDE, SIDE))
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)[None], [f"resized to {SIDE} × {SIDE}"]


def _in_memory(images: Images, labels: Labels) -> InMemory:
    return InMemory(torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(labels))


def _read(folder: Path | None, source: str, side: str) -> tuple[Images, Labels]:
    if folder is not None and (folder / FOLDER).is_dir():
        place = str(folder / FOLDER / f"{side}.parquet")
        rows = _rows_of_file(place)
    elif folder is not None or source == "torchvision":
        place = f"{folder or LOCAL_DATA}/cifar-100-python"
        return _checked(*_torchvision(folder, side), side, place)
    else:
        place = f"{HUB_NAME} on the Hugging Face hub, {side}"
        rows = _rows_of_hub(side)
    for column in COLUMNS:
        if any(row.get(column) is None for row in rows):
            raise DataError(f"{place}: the column {column!r} is missing or has gaps; {FETCH_AGAIN}")
    images = np.empty((len(rows), SIDE, SIDE, 3), dtype=np.uint8)
    for number, row in enumerate(rows):
        images[number] = _decoded(row["img"]["bytes"], f"{place}, row {number}")
    return _checked(images, np.array([row["fine_label"] for row in rows]), side, place)


def _rows_of_file(place: str) -> Sequence[dict]:
    import pyarrow
    from pyarrow import parquet

    try:
        return parquet.read_table(place, columns=list(COLUMNS)).to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(
            f"{place}: cannot be read ({error}); {FETCH_AGAIN}, or give paths.data=null to have it fetched"
        ) from error


def _rows_of_hub(side: str) -> Sequence[dict]:
    # The hub's client fails with the errors of several libraries that share no base class.
    try:
        from datasets import Image as Encoded
        from datasets import load_dataset

        return list(load_dataset(HUB_NAME, split=side).cast_column("img", Encoded(decode=False)))
    except Exception as error:
        raise DataError(
            f"{HUB_NAME} cannot be loaded from the Hugging Face hub ({error}); give paths.data=FOLDER, a folder that "
            f"holds {FOLDER}/{side}.parquet, or data.source=torchvision"
        ) from error


def _torchvision(folder: Path | None, side: str) -> tuple[Images, Labels]:
    from torchvision.datasets import CIFAR100

    try:
        found = CIFAR100(str(folder or LOCAL_DATA), train=side == "train", download=folder is None)
    except (OSError, RuntimeError) as error:
        raise DataError(
            f"{folder or LOCAL_DATA}: holds neither {FOLDER}/{side}.parquet nor torchvision's cifar-100-python, or it "
            f"cannot be fetched ({error}); name the folder that does with paths.data, or give paths.data=null"
        ) from error
    return found.data, np.array(found.targets)


def _decoded(encoded: bytes, place: str) -> Images:
    try:
        pixels = np.asarray(Image.open(io.BytesIO(encoded)).convert("RGB"))
    except (OSError, SyntaxError) as error:
        raise DataError(f"{place}: the image cannot be decoded ({error}); {FETCH_AGAIN}") from error
    if pixels.shape != (SIDE, SIDE, 3):
        raise DataError(f"{place}: the image is of {pixels.shape[:2]} pixels, not {SIDE} × {SIDE}; {FETCH_AGAIN}")
    return pixels


def _checked(images: Images, labels: Labels, side: str, place: str) -> tuple[Images, Labels]:
    if len(labels) != SIZES[side]:
        raise DataError(f"{place}: {len(labels)} images, {SIZES[side]} are expected; {FETCH_AGAIN}")
    counts = np.bincount(labels[(labels >= 0) & (labels < CLASSES)], minlength=CLASSES)
    if (counts != SIZES[side] // CLASSES).any():
        raise DataError(f"{place}: the classes 0 to {CLASSES - 1} are not of equal size; {FETCH_AGAIN}")
    return images, labels.astype(np.int64)
