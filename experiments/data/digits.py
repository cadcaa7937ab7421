"""The handwritten digits that ship inside scikit-learn: 1,797 images, nothing to download."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from PIL import UnidentifiedImageError
from torch import Tensor

from experiments.data.base import ClassificationDataModule
from experiments.data.examples import ClassificationData, InMemory
from experiments.data.long_tail import ShotRule, exponential_tail
from experiments.data.pictures import picture_of
from experiments.data.splits import stratified_group_split
from experiments.data.text import lines_of
from experiments.settings import OpenShare, Ratio, Seed, validated_class

SIDE = 8
FILE = "datasets/data/digits.csv.gz"  # in the package of scikit-learn: in each row the pixels and the label
BRIGHTEST = 16  # scikit-learn's digits count the ink of 4 × 4 blocks: integers from 0 to 16


@validated_class
class DigitsDataModule(ClassificationDataModule):
    """scikit-learn's digits: the 8 × 8 pixels of each image, float32 [n, 64] in [0, 1].

    Arguments: `conf/data/digits.yaml`.
    Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998.
    """

    test_fraction: OpenShare
    split_seed: Seed
    imbalance: Ratio = 1.0
    tail_seed: Seed = 0
    shots: ShotRule | None = None

    def load(self) -> ClassificationData:
        # Only the file is read: importing scikit-learn takes longer than a run.
        place = Path(find_spec("sklearn").submodule_search_locations[0], FILE)
        table = np.loadtxt(place, delimiter=",")
        self.check_count("all", len(table), str(place), "install scikit-learn again")
        labels = table[:, -1].astype(np.int64)
        share, examples = self.test_fraction, range(len(labels))
        train, test = stratified_group_split(labels, examples, share, self.split_seed, "data.test_fraction")
        train = train[exponential_tail(labels[train], self.imbalance, self.tail_seed)]
        remaining, _ = self.split_for_validation(labels[train])
        inputs, targets = torch.from_numpy(table[:, :-1] / BRIGHTEST).float(), torch.from_numpy(labels)
        features = inputs.shape[1]
        return ClassificationData(
            train=InMemory(inputs[train], targets[train]),
            test=InMemory(inputs[test], targets[test]),
            class_names=tuple(map(str, range(10))),
            facts={
                "records": len(labels),
                "features": features,
                **{f"train_{name}": own for name, own in enumerate(np.bincount(labels[train][remaining]).tolist())},
            },
            sizes={"features": features},
            shot_rule=self.shots if self.imbalance > 1 else None,
            encode=_encode,
        )


def _encode(content: bytes) -> tuple[Tensor, list[str]]:
    """Inputs of a grey image of 8 × 8 pixels, white on black, or of a text with 64 numbers from 0 to 16 a line."""
    try:
        image = picture_of(content)
    except UnidentifiedImageError:
        return _encode_text(content)
    if image.size != (SIDE, SIDE):
        raise ValueError(f"the image has {image.width} × {image.height} pixels, {SIDE} × {SIDE} are needed")
    pixels = torch.from_numpy(np.array(image.convert("L")))
    return pixels.reshape(1, -1) / 255, ["image"]


def _encode_text(content: bytes) -> tuple[Tensor, list[str]]:
    rows: dict[str, list[float]] = {}
    for number, line in enumerate(lines_of(content), 1):
        if fields := line.replace(",", " ").split():
            row = rows[f"line {number}"] = [float(field) for field in fields]
            if len(row) != SIDE * SIDE or not all(0 <= value <= BRIGHTEST for value in row):
                raise ValueError(f"line {number}: {SIDE * SIDE} numbers from 0 to {BRIGHTEST} are needed")
    return torch.tensor([*rows.values()]) / BRIGHTEST, [*rows]
