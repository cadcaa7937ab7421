"""ImageNet-1k and ImageNet-LT, from folders of photographs or from the Hugging Face hub."""

import json
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torchvision.datasets.folder import IMG_EXTENSIONS

from experiments.data.base import LOCAL_DATA, ClassificationDataModule
from experiments.data.examples import ClassificationData
from experiments.data.long_tail import ShotRule, keep_counts
from experiments.data.photographs import (
    EncodedImages,
    ImageFiles,
    ImageRows,
    Photographs,
    decoded,
    measuring_transform,
    training_transform,
)
from experiments.data.splits import split_hash
from experiments.errors import ConfigurationError, DataError
from experiments.settings import AtLeastOne, OpenShare, Seed, Share, validated

HUB_NAME = "ILSVRC/imagenet-1k"
CLASSES = 1000
WORDNET_ID = re.compile(r"n\d{8}")
TRAIN = "train"

TAIL_LIST = "imagenet_lt/ImageNet_LT_train.txt"
TAIL_COUNTS = "imagenet_lt/ImageNet_LT_train.json"
TAIL_SIZE, TAIL_LARGEST, TAIL_SMALLEST = 115_846, 1280, 5
FETCH_LISTS = "take it from the lists of ImageNet-LT, facebookresearch/classifier-balancing on GitHub"
SHOWN = 5  # of the names in a message

Labels = NDArray[np.int64]
Indices = NDArray[np.int64]


class Side(NamedTuple):
    """The images of one side of the split, and the class of each, [n]."""

    images: EncodedImages
    labels: Labels

    def kept(self, indices: Indices) -> "Side":
        return Side(self.images.kept(indices), self.labels[indices])


class ImagenetDataModule(ClassificationDataModule):
    """ImageNet-1k, all of it or the long-tailed training images of ImageNet-LT.

    Inputs are pixel values, uint8 [n, 3, image_size, image_size]; the classes are in the order of their WordNet ids.

    Args:
        folder: folder that holds <images>/train/<wnid>/*.JPEG and <images>/<test_folder>/<wnid>/*.JPEG, and for a long
            tail imagenet_lt/ImageNet_LT_train.txt, the published list, or ImageNet_LT_train.json, its number of images
            of each class, by which a sample is drawn. None loads the images from the hub, and takes the numbers from
            the folder `data`.
        images: folder of the photographs, below `folder`.
        test_folder: the side of it that is tested on.
        long_tailed: whether to keep only the training images of ImageNet-LT.
        repeat_images: whether a class with too few images for its count repeats them.
        tail_seed: seed of the choice by counts.
        image_size: pixels each way that the network gets.
        least_area: share of a training image that its random crop has at least.
        shorter_side: pixels that the shorter side of a test image is resized to, before its middle is cut out.
        unreadable_share: share of all images that may be unreadable.
        shots: groups of classes by their training images, for a long tail.
        **batches: as for `ClassificationDataModule`.

    Source: Russakovsky et al., ImageNet Large Scale Visual Recognition Challenge, 2015. Long-tailed: Liu et al.,
        Large-Scale Long-Tailed Recognition in an Open World, 2019.
    """

    @validated
    def __init__(
        self,
        *,
        folder: Path | None = None,
        images: str,
        test_folder: str,
        long_tailed: bool = False,
        repeat_images: bool = False,
        tail_seed: Seed = 0,
        image_size: AtLeastOne,
        least_area: OpenShare,
        shorter_side: AtLeastOne,
        unreadable_share: Share = 0.0,
        shots: ShotRule | None = None,
        **batches: Any,
    ) -> None:
        super().__init__(**batches)
        if shorter_side < image_size:
            raise ConfigurationError(
                f"data.shorter_side={shorter_side} is not allowed; it must be at least data.image_size={image_size}, "
                "which is cut out of it"
            )
        self.folder, self.images, self.test_folder = folder, images, test_folder
        self.long_tailed, self.repeat_images, self.tail_seed = long_tailed, repeat_images, tail_seed
        self.crop = training_transform(image_size, least_area)
        self.middle = measuring_transform(image_size, shorter_side)
        self.unreadable_share, self.shots = unreadable_share, shots

    def load(self) -> ClassificationData:
        if self.folder is None:
            class_names, train, test = _on_hub()
        else:
            class_names, train, test = _in_folders(self.folder / self.images, self.test_folder)
        tail_facts: dict[str, int | float | str] = {}
        shots, repeats, repeated = None, None, 0
        if self.long_tailed:
            kept, source = self._long_tail(train, class_names)
            train = train.kept(kept)
            repeated = len(kept) - len(np.unique(kept))
            repeats = torch.from_numpy(kept) if repeated else None
            tail_facts = {"train_list": source, "repeated_images": repeated}
            if self.shots:
                counts = np.bincount(train.labels, minlength=CLASSES).tolist()
                shots = self.shots.groups(counts)
                tail_facts |= self.shots.facts(counts)
        sizes = len(train.labels), len(test.labels)
        names = (side.images.name(index) for side in (train, test) for index in range(len(side.labels)))
        return ClassificationData(
            train=Photographs(train.images, torch.from_numpy(train.labels), self.crop),
            train_as_measured=Photographs(train.images, torch.from_numpy(train.labels), self.middle),
            test=Photographs(test.images, torch.from_numpy(test.labels), self.middle),
            class_names=class_names,
            split_hash=split_hash(names, range(sizes[0], sum(sizes))),
            facts={"train_size": sizes[0], "test_size": sizes[1], **tail_facts},
            shots=shots,
            groups=repeats,
            unreadable_most=math.floor(self.unreadable_share * (sum(sizes) - repeated)),
            encode=lambda content: (self.middle(decoded(content))[None], [""]),
        )

    def _long_tail(self, train: Side, class_names: Sequence[str]) -> tuple[Indices, str]:
        """Which training images ImageNet-LT keeps, and how they were chosen."""
        home = self.folder or LOCAL_DATA
        if isinstance(train.images, ImageFiles) and (home / TAIL_LIST).exists():
            return _listed(home / TAIL_LIST, train.images, class_names), "published list"
        counts = _tail_counts(home)
        try:
            return keep_counts(train.labels, counts, self.tail_seed, self.repeat_images), "sampled by counts"
        except ValueError as error:
            raise DataError(
                f"{train.images.place}: {error}, by {home / TAIL_COUNTS}; restore its images, or give "
                "data.repeat_images=true to try a small sample"
            ) from error


def _in_folders(root: Path, test_folder: str) -> tuple[tuple[str, ...], Side, Side]:
    class_names, test_names = (_class_names(root / side) for side in (TRAIN, test_folder))
    if differing := sorted(set(class_names) ^ set(test_names)):
        raise DataError(
            f"{root / test_folder}: its class folders are not those of {root / TRAIN}; only one of them has "
            f"{_first(differing)}"
        )
    return class_names, _scanned(root, TRAIN, class_names), _scanned(root, test_folder, class_names)


def _class_names(folder: Path) -> tuple[str, ...]:
    try:
        found = sorted(os.listdir(folder))
    except OSError as error:
        raise DataError(
            f"{folder}: cannot be read ({error.strerror}); it must hold photographs as <wnid>/*.JPEG: name it with "
            f"paths.data, data.images and data.test_folder, or give paths.data=null to load {HUB_NAME} from the "
            "Hugging Face hub"
        ) from error
    names = tuple(name for name in found if WORDNET_ID.fullmatch(name) and (folder / name).is_dir())
    if len(names) != CLASSES:
        raise DataError(
            f"{folder}: {len(names)} class folders, {CLASSES} are expected, each named by its WordNet id as n01440764; "
            f"there are {_first(found) or 'no files'}"
        )
    return names


def _scanned(root: Path, side: str, class_names: Sequence[str]) -> Side:
    names, labels = [], []
    for label, wnid in enumerate(class_names):
        own = sorted(file for file in os.listdir(root / side / wnid) if file.lower().endswith(IMG_EXTENSIONS))
        if not own:
            raise DataError(f"{root / side / wnid}: holds no image; restore the images of this class")
        names.append(np.array([os.fsencode(f"{side}/{wnid}/{file}") for file in own]))
        labels.append(np.full(len(own), label))
    return Side(ImageFiles(str(root), np.concatenate(names)), np.concatenate(labels))


def _on_hub() -> tuple[tuple[str, ...], Side, Side]:
    # The hub's client fails with the errors of several libraries that share no base class.
    try:
        from datasets import Image, load_dataset

        tables = {
            split: load_dataset(HUB_NAME, split=split).cast_column("image", Image(decode=False))
            for split in (TRAIN, "validation")
        }
    except Exception as error:
        raise DataError(
            f"{HUB_NAME} cannot be loaded from the Hugging Face hub ({error}); ask for access on its page and log in "
            f"with `hf auth login`, or give paths.data=FOLDER, a folder that holds {TRAIN}/<wnid>/*.JPEG in data.images"
        ) from error
    train, test = (_of_table(table, split) for split, table in tables.items())
    return tuple(tables[TRAIN].features["label"].names), train, test


def _of_table(table: Any, split: str) -> Side:
    labels = table.select_columns("label").with_format("numpy")[:]["label"].astype(np.int64)
    found = np.unique(labels)
    if not np.array_equal(found, np.arange(CLASSES)):
        raise DataError(
            f"{HUB_NAME}, {split}: {len(found)} classes from {found.min()} to {found.max()}, {CLASSES} from 0 are "
            "expected; remove it from the cache of the Hugging Face hub and load it again"
        )
    return Side(ImageRows(HUB_NAME, split, table, np.arange(len(labels))), labels)


def _listed(path: Path, images: ImageFiles, class_names: Sequence[str]) -> Indices:
    """Where the images of the published list, lines "train/n01440764/n01440764_10026.JPEG 0", lie among all."""
    listed, labels = [], []
    for number, line in enumerate(_read(path).splitlines(), 1):
        name, _, label = line.rpartition(" ")
        known = label.isdecimal() and int(label) < CLASSES
        if not (known and name.startswith(f"{TRAIN}/{class_names[int(label)]}/")):
            raise DataError(
                f"{path}, line {number}: {line!r} is not {TRAIN}/<wnid>/<file> and the class, from 0 in the order of "
                f"the wnids; {FETCH_LISTS}"
            )
        listed.append(os.fsencode(name))
        labels.append(int(label))
    _check_profile(np.bincount(np.array(labels, dtype=np.int64), minlength=CLASSES).tolist(), path)
    wanted = np.array(listed)
    order = np.argsort(images.names)
    position = np.searchsorted(images.names, wanted, sorter=order).clip(max=len(order) - 1)
    found: Indices = order[position]
    if len(missing := wanted[images.names[found] != wanted]):
        raise DataError(
            f"{images.place}: {len(missing)} of the {len(wanted)} images of {path} are missing: "
            f"{_first([os.fsdecode(name) for name in missing])}; restore them"
        )
    return found


def _tail_counts(home: Path) -> list[int]:
    path = home / TAIL_COUNTS
    if not path.exists():
        raise DataError(
            f"{path}: is missing; ImageNet-LT needs it, the number of training images of each class as {CLASSES} "
            f"numbers in JSON, or for images in a folder {home / TAIL_LIST}, its published list; or give "
            "data.long_tailed=false"
        )
    try:
        counts = json.loads(_read(path))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}, line {error.lineno}: is no JSON ({error.msg}); {FETCH_LISTS}") from error
    if not (isinstance(counts, list) and counts and all(type(count) is int for count in counts)):
        raise DataError(f"{path}: is no list of whole numbers, {CLASSES} are expected; {FETCH_LISTS}")
    _check_profile(counts, path)
    return counts


def _check_profile(counts: Sequence[int], path: Path) -> None:
    found = len(counts), min(counts), max(counts), sum(counts)
    if found != (CLASSES, TAIL_SMALLEST, TAIL_LARGEST, TAIL_SIZE):
        raise DataError(
            "{}: {} classes of {} to {} images, {} in all; ImageNet-LT has {} of {} to {}, {} in all; {}".format(
                path, *found, CLASSES, TAIL_SMALLEST, TAIL_LARGEST, TAIL_SIZE, FETCH_LISTS
            )
        )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error}); {FETCH_LISTS}") from error


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")
