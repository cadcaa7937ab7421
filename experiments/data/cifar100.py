"""CIFAR-100, from a folder, the Hugging Face hub or torchvision's download."""

from contextlib import nullcontext
from typing import ClassVar, Literal

import numpy as np
from filelock import FileLock

from experiments.data.hub import load_images
from experiments.data.small_images import Images, SmallImageDataModule
from experiments.data.splits import Indices
from experiments.errors import reading
from experiments.files import LOCAL_DATA
from experiments.settings import validated_class

HUB_NAME = "uoft-cs/cifar100"
FOLDER = "cifar100"


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

    def read(self, split: str) -> tuple[Images, Indices, str]:
        in_folder = self.folder is not None and (self.folder / FOLDER).is_dir()
        if not in_folder and (self.folder or self.source == "torchvision"):
            return self._of_torchvision(split)
        remedy = (
            f"{self.fetch_again}, as {FOLDER}/train.parquet and test.parquet in the folder paths.data, or have it "
            "fetched with paths.data=null, and where the hub cannot be reached data.source=torchvision"
        )
        file = self.folder / FOLDER / f"{split}.parquet" if in_folder else None
        rows, _, place = load_images(file, HUB_NAME, split, "img", "fine_label", remedy)
        return *self.decode(rows), place

    def _of_torchvision(self, split: str) -> tuple[Images, Indices, str]:
        from torchvision.datasets import CIFAR100

        folder = self.folder or LOCAL_DATA
        remedy = (
            f"it holds neither {FOLDER}/{split}.parquet nor torchvision's cifar-100-python, or it cannot be fetched: "
            "name the folder that does with paths.data, or give paths.data=null"
        )
        download_lock = FileLock(LOCAL_DATA / "cifar100.lock") if self.folder is None else nullcontext()
        with reading(folder, remedy), download_lock:  # one run of a sweep downloads, and the others wait
            found = CIFAR100(str(folder), train=split == "train", download=self.folder is None)
        return found.data, np.array(found.targets, dtype=np.int64), f"{folder}/cifar-100-python"
