"""ImageNet-1k and ImageNet-LT, from folders of photographs or from the Hugging Face hub."""

import copy
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torchvision.datasets import DatasetFolder, ImageFolder
from torchvision.transforms import v2

from experiments.data.base import ClassificationDataModule
from experiments.data.examples import ClassificationData
from experiments.data.hub import load_from_hub
from experiments.data.long_tail import ShotRule, keep_counts
from experiments.data.pictures import picture_of, read_picture
from experiments.data.splits import Indices
from experiments.data.text import filled_lines_of
from experiments.data.torch_datasets import DatasetExamples
from experiments.data.wordnet import WNID
from experiments.errors import ConfigurationError, DataError, reading
from experiments.files import LOCAL_DATA, names_in, read_file, text_of
from experiments.settings import AtLeastOne, OpenShare, Seed, YesNo, validated_class

HUB_NAME, HUB_SPLITS = "ILSVRC/imagenet-1k", ("train", "validation")
CLASSES = 1000
TRAIN = "train"
RESTORE = "restore its images"

TAIL_LIST = "imagenet_lt/ImageNet_LT_train.txt"
TAIL_COUNTS = "imagenet_lt/ImageNet_LT_train.json"
TAIL_SIZE, TAIL_LARGEST, TAIL_SMALLEST = 115_846, 1280, 5
FETCH_LISTS = "take it from the lists of ImageNet-LT, facebookresearch/classifier-balancing on GitHub"


@validated_class
class ImagenetDataModule(ClassificationDataModule):
    """ImageNet-1k, complete or with ImageNet-LT's training images; inputs are uint8 [n, 3, image_size, image_size].

    The classes are in the order of their WordNet ids. The long tail needs a file in the folder `imagenet_lt` below
    `folder`, or below `data` if the images come from the hub. This file is the published list, ImageNet_LT_train.txt,
    for images in `folder`; or the number of images of each class, ImageNet_LT_train.json, from which a sample is drawn.

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
    shots: ShotRule | None = None

    def load(self) -> ClassificationData:
        if self.image_size > self.shorter_side:  # the crop would get a black frame
            raise ConfigurationError(
                f"data.image_size={self.image_size} is not allowed; it is cut from images whose shorter side has "
                f"data.shorter_side={self.shorter_side} pixels"
            )
        train, test = self._in_folders(self.folder / self.images) if self.folder else map(HubFolder, HUB_SPLITS)
        tail_list = self.folder / TAIL_LIST if self.long_tailed and self.folder else None
        by_list = tail_list is not None and tail_list.exists()
        if not by_list:  # the folder may hold no other images
            self.check_count(TRAIN, len(train), str(train.root), RESTORE)
        self.check_count("test", len(test), str(test.root), RESTORE)
        facts, repeats = {}, None
        if self.long_tailed:
            kept = _listed(tail_list, train) if by_list else self._sampled(train)
            repeated = len(kept) - len(np.unique(kept))
            facts = {"train_list": "published list" if by_list else "sampled by counts", "repeated_images": repeated}
            repeats = torch.from_numpy(kept) if repeated else None
            train.samples = [train.samples[index] for index in kept]
            train.targets = [label for _, label in train.samples]
        # Szegedy et al., Going Deeper with Convolutions, 2015, section 6
        crop = v2.RandomResizedCrop(self.image_size, scale=(self.least_area, 1.0))
        varied = v2.Compose([v2.PILToTensor(), crop, v2.RandomHorizontalFlip()])
        # He et al., Deep Residual Learning, 2016, section 3.4
        middle = v2.Compose([v2.PILToTensor(), v2.Resize(self.shorter_side), v2.CenterCrop(self.image_size)])
        return ClassificationData(
            train=_examples(train, varied),
            train_as_measured=_examples(train, middle),
            test=_examples(test, middle),
            class_names=tuple(train.classes),
            facts=facts,
            shot_rule=self.shots if self.long_tailed else None,
            groups=repeats,
            encode=lambda content: (middle(picture_of(content))[None], [""]),
        )

    def _in_folders(self, root: Path) -> tuple[DatasetFolder, DatasetFolder]:
        remedy = (
            f"{names_in(root)}; {TRAIN} and {self.test_folder} must hold photographs as <wnid>/*.JPEG: name the folder "
            f"with paths.data, data.images and data.test_folder, or give paths.data=null to load {HUB_NAME} "
            "from the Hugging Face hub"
        )
        with reading(root, remedy):
            train, test = (ImageFolder(str(root / side), loader=read_picture) for side in (TRAIN, self.test_folder))
        if train.classes != test.classes or len(train.classes) != CLASSES:
            raise DataError(
                f"{root}: {len(train.classes)} class folders in {TRAIN} and {len(test.classes)} in {self.test_folder}; "
                f"both must have the same {CLASSES}, named by their WordNet ids as n01440764"
            )
        if wrong := [name for name in train.classes if not WNID.fullmatch(name)]:  # the order of the classes is wrong
            raise DataError(f"{root}: the class folder {wrong[0]} must be named by its WordNet id, as n01440764")
        return train, test

    def _sampled(self, train: DatasetFolder) -> Indices:
        """A random choice of as many training images of each class as ImageNet-LT has."""
        path = (self.folder or LOCAL_DATA) / TAIL_COUNTS
        remedy = (
            "it must hold the number of images of each class in JSON, or for images in a folder "
            f"{TAIL_LIST} the published list; or give data.long_tailed=false"
        )
        with reading(path, remedy):
            counts = json.loads(text_of(read_file(path)))
            if not (isinstance(counts, list) and counts and all(type(count) is int for count in counts)):
                raise ValueError("no list of whole numbers")
        _check_profile(counts, path)
        try:
            return keep_counts(train.targets, counts, self.tail_seed, self.repeat_images)
        except ValueError as error:
            raise DataError(
                f"{train.root}: {error}, by {path}; {RESTORE}, or give data.repeat_images=true to try a small sample"
            ) from error


class HubFolder(DatasetFolder):
    """A split of ImageNet-1k on the hub in the form of torchvision's ImageFolder: the path train/7 names a row."""

    transform = target_transform = None

    def __init__(self, split: str) -> None:
        import pyarrow.compute
        from datasets import Image as ImageFeature

        remedy = (
            "ask for access on its page and log in with `hf auth login`, or give paths.data=FOLDER, a folder with the "
            "photographs in data.images"
        )
        self.root = f"{HUB_NAME}, {split}"
        self.table = load_from_hub(HUB_NAME, split, remedy).cast_column("image", ImageFeature(decode=False))
        self.classes = self.table.features["label"].names
        self.targets = self.table.select_columns("label").with_format("numpy")[:]["label"].tolist()
        encoded = pyarrow.compute.struct_field(self.table.data.column("image"), "bytes")
        self.sizes = pyarrow.compute.binary_length(encoded).to_pylist()
        self.samples = [(f"{split}/{row}", label) for row, label in enumerate(self.targets)]

    def size(self, path: str) -> int:
        return self.sizes[int(Path(path).name)]

    def loader(self, path: str) -> Image.Image:
        return picture_of(self.table[int(Path(path).name)]["image"]["bytes"])


def _examples(dataset: DatasetFolder, transform: v2.Transform) -> DatasetExamples:
    dataset = copy.copy(dataset)  # the list of the images is shared
    dataset.transform = transform
    return DatasetExamples(dataset, torch.tensor(dataset.targets))


def _listed(path: Path, train: DatasetFolder) -> Indices:
    """The numbers of the published list's images among all; a line is "train/n01440764/n01440764_10026.JPEG 0"."""
    root = Path(train.root).parent
    numbers = {file.removeprefix(f"{root}/"): number for number, (file, _) in enumerate(train.samples)}
    with reading(path, FETCH_LISTS):
        lines = [line.rpartition(" ") for line in filled_lines_of(read_file(path))]
    names = [name for name, _, _ in lines]
    if missing := [name for name in names if name not in numbers]:
        raise DataError(
            f"{root}: {len(missing)} of the {len(names)} images of {path} are missing, the first is {missing[0]!r}; "
            f"{RESTORE}, or for the list, {FETCH_LISTS}"
        )
    for name, _, label in lines:
        if label != (expected := str(train.targets[numbers[name]])):
            raise DataError(
                f"{path}: {name} has class {label}; its folder is class {expected}, counted from 0 in the order of the "
                f"WordNet ids; {FETCH_LISTS}"
            )
    kept = np.array([numbers[name] for name in names], dtype=np.int64)
    _check_profile(np.bincount(np.array(train.targets)[kept], minlength=CLASSES).tolist(), path)
    return kept


def _check_profile(counts: Sequence[int], path: Path) -> None:
    found = len(counts), min(counts), max(counts), sum(counts)
    expected = CLASSES, TAIL_SMALLEST, TAIL_LARGEST, TAIL_SIZE
    if found != expected:
        profile = "{} classes of {} to {} images, {} in all"
        raise DataError(f"{path}: {profile.format(*found)}; ImageNet-LT has {profile.format(*expected)}; {FETCH_LISTS}")
