"""CIFAR-100, from a folder, the Hugging Face hub or torchvision's download."""

from contextlib import nullcontext
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from filelock import FileLock

from experiments.data.hub import load_images, parquet_file
from experiments.data.small_images import Images, SmallImageDataModule
from experiments.data.splits import Indices
from experiments.errors import reading
from experiments.files import LOCAL_DATA, names_in
from experiments.settings import validated_class

HUB_NAME = "uoft-cs/cifar100"
ARCHIVE = "cifar-100-python"  # as the official archive unpacks


@validated_class
class Cifar100DataModule(SmallImageDataModule):
    """CIFAR-100, complete, long-tailed or cut to a balanced subset; inputs are uint8 [n, 3, 32, 32].

    Arguments: `conf/data/cifar100.yaml`.
    Source: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009. Long-tailed: Cui et al., 2019.
    """

    source: Literal["hub", "torchvision"] = "hub"

    classes: ClassVar[int] = 100
    side: ClassVar[int] = 32
    fetch_again: ClassVar[str] = f"fetch it again, from {HUB_NAME} on the Hugging Face hub"
    own_folder: ClassVar[str] = "cifar100"

    def read(self, split: str) -> tuple[Images, Indices, str]:
        if self.folder is None and self.source == "torchvision":
            return self._of_torchvision(LOCAL_DATA, split)
        own = self.folder and self.folder / self.own_folder
        unpacked = self.unpacked(ARCHIVE)
        if unpacked and not (own and parquet_file(own, "train").exists()):
            return self._of_torchvision(unpacked.parent, split)
        remedy = (
            f"{self.fetch_again}, as {self.own_folder}/train.parquet and test.parquet in the folder paths.data, or "
            f"unpack the official archive there, to {ARCHIVE}, or have it fetched with paths.data=null, and where the "
            "hub cannot be reached data.source=torchvision"
        )
        rows, _, place = load_images(own, HUB_NAME, split, "img", "fine_label", remedy)
        return *self.decode(rows), place

    def _of_torchvision(self, home: Path, split: str) -> tuple[Images, Indices, str]:
        from torchvision.datasets import CIFAR100

        place = home / ARCHIVE
        remedy = (
            f"{names_in(place)}; the published files train, test and meta are expected, with their MD5: unpack the "
            "official archive again and name its folder with paths.data, or give paths.data=null data.source=hub"
        )
        download_lock = FileLock(LOCAL_DATA / "cifar100.lock") if self.folder is None else nullcontext()
        with reading(place, remedy), download_lock:  # one run of a sweep downloads, and the others wait
            found = CIFAR100(str(home), train=split == "train", download=self.folder is None)
        return found.data, np.array(found.targets, dtype=np.int64), str(place)
