"""Tiny ImageNet, from parquet files, the official archive or the Hugging Face hub."""

import re
from collections.abc import Sequence
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import ClassVar

from experiments.data.hub import EncodedImage, load_images
from experiments.data.small_images import Images, SmallImageDataModule
from experiments.data.splits import Indices
from experiments.errors import DataError
from experiments.settings import AtLeastOne, validated_class

HUB_NAME = "zh-plus/tiny-imagenet"
FOLDER = "tiny_imagenet"  # holds train.parquet and valid.parquet
ARCHIVE = "tiny-imagenet-200"  # as the official archive unpacks
HUB_SPLITS = {"train": "train", "test": "valid"}  # the published test images have no labels


@validated_class
class TinyImagenetDataModule(SmallImageDataModule):
    """200 classes of ImageNet-1k at 64 × 64 pixels, in the order of their WordNet ids; inputs are uint8 [n, 3, 64, 64].

    Arguments: `conf/data/tiny_imagenet.yaml`.
    Source: Y. Le and X. Yang, Tiny ImageNet Visual Recognition Challenge, Stanford CS 231N, 2015.
    """

    images_per_class: AtLeastOne | None = None

    classes: ClassVar[int] = 200
    side: ClassVar[int] = 64
    fetch_again: ClassVar[str] = f"fetch it again: the archive {ARCHIVE}, or {HUB_NAME} on the Hugging Face hub"
    wnids: tuple[str, ...] = ()

    def class_names(self) -> Sequence[str]:
        return self.wnids

    def read(self, split: str) -> tuple[Images, Indices, str]:
        if self.folder and (self.folder / ARCHIVE).is_dir():
            place, rows = str(self.folder / ARCHIVE), self._of_archive(self.folder / ARCHIVE, split)
        else:
            hub_split = HUB_SPLITS[split]
            file = self.folder / FOLDER / f"{hub_split}.parquet" if self.folder else None
            remedy = f"{self.fetch_again}, for a folder paths.data=FOLDER, or paths.data=null to load it from the hub"
            images, names, place = load_images(file, HUB_NAME, hub_split, "image", "label", remedy)
            self._set_wnids(names, place)
            rows = [(encoded, self.wnids.index(names[label])) for encoded, label in images]
        if split == "train" and self.images_per_class is not None:
            by_class = groupby(sorted(rows, key=itemgetter(1)), itemgetter(1))  # within a class in their order
            rows = [row for _, own in by_class for row in islice(own, self.images_per_class)]
        return *self.decode(rows, f"{place}, {split}"), place

    def _of_archive(self, archive: Path, split: str) -> list[EncodedImage]:
        """The images of the official archive, in the order of the numbers in their names."""
        try:
            self._set_wnids([folder.name for folder in (archive / "train").iterdir() if folder.is_dir()], str(archive))
            if split == "train":
                folders = [(wnid, archive / "train" / wnid / "images") for wnid in self.wnids]
                found = [(file, wnid) for wnid, folder in folders for file in sorted(folder.iterdir(), key=_number)]
            else:
                lines = (archive / "val" / "val_annotations.txt").read_text().splitlines()
                named = [line.split("\t")[:2] for line in lines]
                found = [(archive / "val" / "images" / name, wnid) for name, wnid in named]
                found.sort(key=lambda one: _number(one[0]))
            return [(file.read_bytes(), self.wnids.index(wnid)) for file, wnid in found]
        except (OSError, ValueError) as error:
            raise DataError(f"{archive}, {split}: cannot be read ({error}); {self.fetch_again}") from error

    def _set_wnids(self, names: Sequence[str], place: str) -> None:
        if len({*names}) != self.classes or not all(re.fullmatch(r"n\d{8}", name) for name in names):
            raise DataError(
                f"{place}: has {len({*names})} classes; {self.classes} are expected, each named by its WordNet id as "
                f"n01443537; {self.fetch_again}"
            )
        self.wnids = tuple(sorted(names))


def _number(file: Path) -> int:
    """The number of an image: 7 of n01443537_7.JPEG and of val_7.JPEG."""
    return int(file.stem.rpartition("_")[2])
