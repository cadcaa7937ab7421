"""Tiny ImageNet, from parquet files, the official archive or the Hugging Face hub."""

from collections.abc import Sequence
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import ClassVar

from experiments.data.hub import EncodedImage, load_images
from experiments.data.small_images import Images, SmallImageDataModule
from experiments.data.splits import Indices
from experiments.data.text import filled_lines_of
from experiments.data.wordnet import WNID
from experiments.errors import DataError, reading
from experiments.files import names_in, read_file
from experiments.settings import AtLeastOne, validated_class

HUB_NAME = "zh-plus/tiny-imagenet"
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
    own_folder: ClassVar[str] = "tiny_imagenet"
    wnids = ()  # of the training images, in the order of the class numbers; no setting

    def class_names(self) -> Sequence[str]:
        return self.wnids

    def read(self, split: str) -> tuple[Images, Indices, str]:
        if archive := self.unpacked(ARCHIVE):
            images, names, place = self._of_archive(archive, split)
        else:
            hub_split = HUB_SPLITS[split]
            remedy = (
                f"{self.fetch_again}; paths.data=FOLDER names the folder that holds {self.own_folder}/"
                f"{hub_split}.parquet or {ARCHIVE}, and paths.data=null loads from the hub"
            )
            own = self.folder and self.folder / self.own_folder
            images, names, place = load_images(own, HUB_NAME, hub_split, "image", "label", remedy)
        self._set_wnids(names, f"{place}, {split}")
        # A label that has no name stays as it is, and `decode` refuses it.
        classes = {number: self.wnids.index(name) for number, name in enumerate(names)}
        rows = [
            (encoded, classes.get(label, -1 if label is None else label), where) for encoded, label, where in images
        ]
        if split == "train":
            by_class = groupby(sorted(rows, key=itemgetter(1)), itemgetter(1))  # within a class in their order
            rows = [row for _, own in by_class for row in islice(own, self.images_per_class)]
        return *self.decode(rows), place

    def _of_archive(self, archive: Path, split: str) -> tuple[list[EncodedImage], list[str], str]:
        """As `load_images`, from the official archive, in the order of the numbers in the images' names."""
        with reading(f"{archive}, {split}", self.fetch_again, (OSError, ValueError)):
            if split == "train":
                found = [(file, file.parts[-3]) for file in (archive / "train").glob("*/images/*.JPEG")]
                if not found:
                    raise ValueError(f"no train/<wnid>/images/*.JPEG; {names_in(archive / 'train')}")
            else:
                lines = filled_lines_of(read_file(archive / "val" / "val_annotations.txt"))
                named = [line.split("\t")[:2] for line in lines]
                found = [(archive / "val" / "images" / name, wnid) for name, wnid in named]
            found.sort(key=lambda one: int(one[0].stem.rpartition("_")[2]))  # 7 of n01443537_7.JPEG and of val_7.JPEG
            names = sorted({wnid for _, wnid in found})
            return [(read_file(file), names.index(wnid), str(file)) for file, wnid in found], names, str(archive)

    def _set_wnids(self, names: Sequence[str], place: str) -> None:
        found = tuple(sorted({*names}))
        allowed = self.wnids or found  # the training images are read first
        wrong = [name for name in found if name not in allowed or not WNID.fullmatch(name)]
        if wrong or len(found) != self.classes:
            one = f", {wrong[0]} among them" if wrong else ""
            raise DataError(
                f"{place}: has {len(found)} classes{one}; {self.classes} are expected, each named by its WordNet id "
                f"as n01443537, the same for training and test images; {self.fetch_again}"
            )
        self.wnids = found
