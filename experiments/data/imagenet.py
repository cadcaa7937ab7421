"""ImageNet-1k and ImageNet-LT, from folders of photographs or from the Hugging Face hub."""

import json
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torchvision.datasets.folder import IMG_EXTENSIONS

from experiments.data.base import ClassificationDataModule
from experiments.data.examples import ClassificationData
from experiments.data.hub import load_from_hub
from experiments.data.local_files import LOCAL_DATA, read_file
from experiments.data.long_tail import ShotRule, keep_counts
from experiments.data.photographs import (
    ImageFiles,
    ImageRows,
    Photographs,
    decoded,
    measuring_transform,
    training_transform,
)
from experiments.data.splits import Indices
from experiments.errors import ConfigurationError, DataError
from experiments.settings import AtLeastOne, OpenShare, Seed, Share, YesNo, validated_class

HUB_NAME = "ILSVRC/imagenet-1k"
CLASSES = 1000
TRAIN = "train"
RESTORE = "restore its images"

TAIL_LIST = "imagenet_lt/ImageNet_LT_train.txt"
TAIL_COUNTS = "imagenet_lt/ImageNet_LT_train.json"
TAIL_SIZE, TAIL_LARGEST, TAIL_SMALLEST = 115_846, 1280, 5
FETCH_LISTS = "take it from the lists of ImageNet-LT, facebookresearch/classifier-balancing on GitHub"

Images = ImageFiles | ImageRows
Side = tuple[Images, Indices]  # the images of one side of the split, and the class of each, [n]


@validated_class
class ImagenetDataModule(ClassificationDataModule):
    """ImageNet-1k, complete or with ImageNet-LT's training images; inputs are uint8 [n, 3, image_size, image_size].

    The classes are in the order of their WordNet ids. The long tail needs a file in the folder `imagenet_lt` below
    `folder`, or below `data` if the images come from the hub. This file is the published list, ImageNet_LT_train.txt,
    or the number of images of each class, ImageNet_LT_train.json, from which a sample is drawn.

    Arguments: `conf/data/imagenet.yaml`.
    Source: Russakovsky et al., ImageNet Large Scale Visual Recognition Challenge, 2015. Long-tailed: Liu et al.,
        Large-Scale Long-Tailed Recognition in an Open World, 2019.
    """

    folder: Path | None = None
    images: str
    test_folder: str
    long_tailed: YesNo = False
    repeat_images: YesNo = False
    tail_seed: Seed = 0
    image_size: AtLeastOne
    least_area: OpenShare
    shorter_side: AtLeastOne
    unreadable_share: Share = 0.0
    shots: ShotRule | None = None

    def load(self) -> ClassificationData:
        if self.shorter_side < self.image_size:
            raise ConfigurationError(
                f"data.shorter_side={self.shorter_side} is not allowed; it must be at least "
                f"data.image_size={self.image_size}, which is cut out of it"
            )
        if self.folder is None:
            class_names, (train, labels), (test, test_labels) = _on_hub()
        else:
            class_names, (train, labels), (test, test_labels) = _in_folders(self.folder / self.images, self.test_folder)
        if not self._by_list(train):  # the folder may hold no other images
            self.check_count(TRAIN, len(labels), f"{train.place}, {TRAIN}", RESTORE)
        self.check_count("test", len(test_labels), f"{test.place}, the test side", RESTORE)
        tail_facts: dict[str, int | str] = {}
        repeats, repeated = None, 0
        if self.long_tailed:
            kept, source = self._long_tail(train, labels, class_names)
            train, labels = train.kept(kept), labels[kept]
            repeated = len(kept) - len(np.unique(kept))
            repeats = torch.from_numpy(kept) if repeated else None
            tail_facts = {"train_list": source, "repeated_images": repeated}
        whole = len(labels) + len(test_labels)
        crop = training_transform(self.image_size, self.least_area)
        middle = measuring_transform(self.image_size, self.shorter_side)
        return ClassificationData(
            train=Photographs(train, torch.from_numpy(labels), crop),
            train_as_measured=Photographs(train, torch.from_numpy(labels), middle),
            test=Photographs(test, torch.from_numpy(test_labels), middle),
            class_names=class_names,
            facts=tail_facts,
            shot_rule=self.shots if self.long_tailed else None,
            groups=repeats,
            unreadable_most=math.floor(self.unreadable_share * (whole - repeated)),
            encode=lambda content: (middle(decoded(content))[None], [""]),
        )

    def _by_list(self, train: Images) -> bool:
        """Whether the published list says which training images are kept."""
        home = self.folder or LOCAL_DATA
        return self.long_tailed and isinstance(train, ImageFiles) and (home / TAIL_LIST).exists()

    def _long_tail(self, train: Images, labels: Indices, class_names: Sequence[str]) -> tuple[Indices, str]:
        """The training images that ImageNet-LT keeps, and how they were chosen."""
        home = self.folder or LOCAL_DATA
        if self._by_list(train):
            return _listed(home / TAIL_LIST, train, class_names), "published list"
        counts = _tail_counts(home)
        try:
            return keep_counts(labels, counts, self.tail_seed, self.repeat_images), "sampled by counts"
        except ValueError as error:
            raise DataError(
                f"{train.place}: {error}, by {home / TAIL_COUNTS}; restore its images, or give "
                "data.repeat_images=true to try a small sample"
            ) from error


def _in_folders(root: Path, test_folder: str) -> tuple[tuple[str, ...], Side, Side]:
    class_names, test_names = _class_names(root / TRAIN), _class_names(root / test_folder)
    if differing := sorted({*class_names} ^ {*test_names}):
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
    names = tuple(name for name in found if re.fullmatch(r"n\d{8}", name) and (folder / name).is_dir())
    if len(names) != CLASSES:
        raise DataError(
            f"{folder}: {len(names)} class folders, {CLASSES} are expected, each named by its WordNet id as n01440764; "
            f"there are {_first(found) or 'no files'}"
        )
    return names


def _scanned(root: Path, side: str, class_names: Sequence[str]) -> Side:
    names, counts = [], []
    for wnid in class_names:
        try:
            own = sorted(file for file in os.listdir(root / side / wnid) if file.lower().endswith(IMG_EXTENSIONS))
        except OSError as error:
            raise DataError(f"{root / side / wnid}: cannot be read ({error.strerror}); {RESTORE}") from error
        if not own:
            raise DataError(f"{root / side / wnid}: holds no image; restore the images of this class")
        names.append(np.array([os.fsencode(f"{side}/{wnid}/{file}") for file in own]))
        counts.append(len(own))
    return ImageFiles(str(root), np.concatenate(names)), np.repeat(np.arange(len(counts)), counts)


def _on_hub() -> tuple[tuple[str, ...], Side, Side]:
    remedy = (
        "ask for access on its page and log in with `hf auth login`, or give paths.data=FOLDER, a folder that holds "
        f"{TRAIN}/<wnid>/*.JPEG in data.images"
    )
    splits = (TRAIN, "validation")
    tables = [load_from_hub(HUB_NAME, split, remedy) for split in splits]
    train, test = map(_side_of_table, tables, splits)
    return tuple(tables[0].features["label"].names), train, test


def _side_of_table(table: Any, split: str) -> Side:
    from datasets import Image

    table = table.cast_column("image", Image(decode=False))
    labels = table.select_columns("label").with_format("numpy")[:]["label"].astype(np.int64)
    found = np.unique(labels)
    if not np.array_equal(found, np.arange(CLASSES)):
        raise DataError(
            f"{HUB_NAME}, {split}: {len(found)} classes from {found.min()} to {found.max()}, {CLASSES} from 0 are "
            "expected; remove it from the cache of the Hugging Face hub and load it again"
        )
    return ImageRows(HUB_NAME, split, table, np.arange(len(labels))), labels


def _listed(path: Path, images: ImageFiles, class_names: Sequence[str]) -> Indices:
    """The positions of the published list's images among all; a line is "train/n01440764/n01440764_10026.JPEG 0"."""
    classes = {f"{TRAIN}/{wnid}": str(label) for label, wnid in enumerate(class_names)}
    names, labels = [], []
    for number, line in enumerate(_read(path).splitlines(), 1):
        name, _, label = line.rpartition(" ")
        if classes.get(name.rpartition("/")[0]) != label:
            raise DataError(
                f"{path}, line {number}: {line!r} is not {TRAIN}/<wnid>/<file> and the class, from 0 in the order of "
                f"the wnids; {FETCH_LISTS}"
            )
        names.append(name)
        labels.append(int(label))
    _check_profile(np.bincount(np.array(labels, dtype=np.int64), minlength=CLASSES).tolist(), path)
    positions = {os.fsdecode(name): position for position, name in enumerate(images.names)}
    if missing := [name for name in names if name not in positions]:
        raise DataError(
            f"{images.place}: {len(missing)} of the {len(names)} images of {path} are missing: {_first(missing)}; "
            "restore them"
        )
    return np.array([positions[name] for name in names])


def _tail_counts(home: Path) -> list[int]:
    path = home / TAIL_COUNTS
    try:
        counts = json.loads(_read(path))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}, line {error.lineno}: is no JSON ({error.msg}); {FETCH_LISTS}") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, lists within lists
        raise DataError(f"{path}: is no list of whole numbers ({error}); {FETCH_LISTS}") from error
    if not (isinstance(counts, list) and counts and all(type(count) is int for count in counts)):
        raise DataError(f"{path}: is no list of whole numbers, {CLASSES} are expected; {FETCH_LISTS}")
    _check_profile(counts, path)
    return counts


def _check_profile(counts: Sequence[int], path: Path) -> None:
    found = len(counts), min(counts), max(counts), sum(counts)
    expected = CLASSES, TAIL_SMALLEST, TAIL_LARGEST, TAIL_SIZE
    if found != expected:
        profile = "{} classes of {} to {} images, {} in all"
        raise DataError(f"{path}: {profile.format(*found)}; ImageNet-LT has {profile.format(*expected)}; {FETCH_LISTS}")


def _read(path: Path) -> str:
    try:
        return read_file(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path}: cannot be read ({error}); ImageNet-LT needs {TAIL_COUNTS}, the number of training images of each "
            f"class as {CLASSES} numbers in JSON, or for images in a folder {TAIL_LIST}, its published list; or give "
            "data.long_tailed=false"
        ) from error


def _first(names: Sequence[str], shown: int = 5) -> str:
    return ", ".join(names[:shown]) + (", …" if len(names) > shown else "")
