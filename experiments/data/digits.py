"""The handwritten digits that ship inside scikit-learn: 1,797 images, nothing to download."""

import io
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from experiments.data.base import ClassificationDataModule
from experiments.data.examples import ClassificationData, InMemory
from experiments.data.long_tail import ShotRule, exponential_counts, keep_counts
from experiments.data.splits import split_hash, stratified_group_split
from experiments.errors import ConfigurationError
from experiments.settings import OpenShare, Ratio, Seed, validated

SIDE = 8
BRIGHTEST = 16  # scikit-learn's digits count the ink of 4 × 4 blocks: integers from 0 to 16


class DigitsDataModule(ClassificationDataModule):
    """scikit-learn's digits, split with the share of each class kept, the training side as long-tailed as asked.

    Inputs are the 8 × 8 pixels of each image, float32 [n, 64] in [0, 1].

    Args:
        test_fraction: share of the images held out for testing.
        split_seed: seed of the split.
        imbalance: ratio of the largest to the smallest training class; 1 keeps all images.
        tail_seed: seed of the images that a smaller class keeps.
        shots: groups of classes by their training images, where they differ in number.
        **batches: as for `ClassificationDataModule`.

    Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998.
    """

    @validated
    def __init__(
        self,
        *,
        test_fraction: OpenShare,
        split_seed: Seed,
        imbalance: Ratio = 1.0,
        tail_seed: Seed = 0,
        shots: ShotRule | None = None,
        **batches: Any,
    ) -> None:
        super().__init__(**batches)
        self._arguments = test_fraction, split_seed, imbalance, tail_seed, shots

    def load(self) -> ClassificationData:
        return _load(*self._arguments)


def _load(
    test_fraction: float, split_seed: int, imbalance: float, tail_seed: int, shots: ShotRule | None
) -> ClassificationData:
    # The file alone: importing scikit-learn takes longer than a run.
    home = Path(find_spec("sklearn").submodule_search_locations[0])
    table = np.loadtxt(home / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    pixels, labels = table[:, :-1], table[:, -1].astype(np.int64)
    count = len(labels)
    try:
        train, test = stratified_group_split(labels, np.arange(count), test_fraction, split_seed)
    except ValueError as error:
        raise ConfigurationError(f"data.test_fraction={test_fraction} is not allowed; {error}") from error
    long_tailed = imbalance > 1
    counts = np.bincount(labels[train]).tolist()
    if long_tailed:
        profile = exponential_counts(max(counts), len(counts), imbalance)
        counts = [min(own, kept) for own, kept in zip(counts, profile, strict=True)]
        train = train[keep_counts(labels[train], counts, tail_seed)]
    groups = shots.groups(counts) if shots and long_tailed else None
    inputs = torch.from_numpy(pixels / BRIGHTEST).float()
    targets = torch.from_numpy(labels)
    kept = np.sort(np.concatenate([train, test]))
    return ClassificationData(
        train=InMemory(inputs[train], targets[train]),
        test=InMemory(inputs[test], targets[test]),
        class_names=tuple(str(name) for name in range(10)),
        split_hash=split_hash(map(str, kept), np.searchsorted(kept, test)),
        facts={
            "records": count,
            "features": inputs.shape[1],
            **{f"train_{name}": own for name, own in zip(range(10), counts, strict=True)},
            "train_size": len(train),
            "test_size": len(test),
            **(shots.facts(counts) if groups else {}),
        },
        sizes={"features": inputs.shape[1]},
        shots=groups,
        encode=_encode,
    )


def _encode(content: bytes) -> tuple[Tensor, list[str]]:
    """Inputs of a grey image of 8 × 8 pixels, white on black, or of a text with 64 numbers from 0 to 16 a line."""
    try:
        image = Image.open(io.BytesIO(content))
    except UnidentifiedImageError:
        return _encode_text(content)
    if image.size != (SIDE, SIDE):
        raise ValueError(f"the image has {image.width} × {image.height} pixels, {SIDE} × {SIDE} are needed")
    pixels = torch.from_numpy(np.array(image.convert("L")))
    return pixels.reshape(1, -1) / 255, ["image"]


def _encode_text(content: bytes) -> tuple[Tensor, list[str]]:
    names, rows = [], []
    for number, line in enumerate(content.decode().splitlines(), 1):
        if not (fields := line.replace(",", " ").split()):
            continue
        try:
            row = [float(field) for field in fields]
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error
        if len(row) != SIDE * SIDE:
            raise ValueError(f"line {number}: {len(row)} numbers, {SIDE * SIDE} are needed")
        if not all(0 <= value <= BRIGHTEST for value in row):
            raise ValueError(f"line {number}: the numbers must be from 0 to {BRIGHTEST}")
        names.append(f"line {number}")
        rows.append(row)
    return torch.tensor(rows) / BRIGHTEST, names
