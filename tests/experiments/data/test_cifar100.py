"""CIFAR-100 from a folder, the hub and torchvision."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from experiments.data.cifar100 import Cifar100DataModule
from experiments.data.examples import ClassificationData
from experiments.data.long_tail import ShotRule
from experiments.errors import ConfigurationError, DataError
from tests.experiments.data.generated import (
    CIFAR_LABELS,
    CIFAR_PIXELS,
    CIFAR_SIZES,
    cifar_rows,
    encoded,
    slope,
    write_cifar,
)
from tests.experiments.data.support import BATCHES


def module(folder: Path | None, **changes: Any) -> Cifar100DataModule:
    settings = {"padding": 4, "shots": ShotRule(rule="mine", many_above=4, few_below=2)} | changes
    data = Cifar100DataModule(folder=folder, **settings, **BATCHES)
    data.setup()
    return data


def load(folder: Path | None, **changes: Any) -> ClassificationData:
    return module(folder, **changes).data


@pytest.fixture
def own_cifar(tmp_path: Path) -> Path:
    """A folder with a small CIFAR-100, to spoil."""
    for side in CIFAR_LABELS:
        write_cifar(tmp_path, side, cifar_rows(side))
    return tmp_path


def test_pixels_and_labels_are_those_of_the_files(cifar: Path) -> None:
    data = load(cifar)
    assert data.train.inputs.dtype == torch.uint8
    assert torch.equal(data.train.inputs, torch.from_numpy(CIFAR_PIXELS).permute(0, 3, 1, 2))
    assert torch.equal(data.test.inputs, data.train.inputs[:200])
    assert data.test.targets.tolist() == CIFAR_LABELS["test"].tolist()
    assert len(data.class_names) == 100
    assert data.shots is None
    assert data.augment is None


def test_torchvisions_folder_gives_the_same(cifar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = tmp_path / "other" / "cifar-100-python"
    there.mkdir(parents=True)
    for side, labels in CIFAR_LABELS.items():
        data = CIFAR_PIXELS[: len(labels)].transpose(0, 3, 1, 2).reshape(len(labels), -1)
        (there / side).write_bytes(pickle.dumps({"data": data, "fine_labels": labels.tolist()}))
    (there / "meta").write_bytes(pickle.dumps({"fine_label_names": [str(n) for n in range(100)]}))
    monkeypatch.setattr("torchvision.datasets.CIFAR100._check_integrity", lambda _: True)
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *_: True)
    found, expected = load(tmp_path / "other"), load(cifar)
    assert torch.equal(found.train.inputs, expected.train.inputs)
    assert torch.equal(found.test.targets, expected.test.targets)
    assert found.content_hash == expected.content_hash


def test_the_hub_gives_the_same(cifar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Rows(list):
        def cast_column(self, name: str, encoding: object) -> "Rows":
            assert name == "img"
            assert encoding.decode is False
            return self

    monkeypatch.setattr("datasets.load_dataset", lambda name, split: Rows(cifar_rows(split)))
    found, expected = load(None), load(cifar)
    assert torch.equal(found.train.inputs, expected.train.inputs)
    assert found.content_hash == expected.content_hash


def test_an_unreachable_hub_names_the_other_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr("datasets.load_dataset", fail)
    with pytest.raises(DataError, match=r"(?s)no route.*paths\.data.*data\.source=torchvision"):
        load(None)


def test_a_long_tail_thins_out_the_training_side_alone(cifar: Path) -> None:
    balanced, tailed = load(cifar), load(cifar, imbalance=5)
    counts = tailed.train.targets.bincount(minlength=100).tolist()
    assert counts == [int(5 * 5 ** (-i / 99)) for i in range(100)]
    assert torch.equal(tailed.test.inputs, balanced.test.inputs)
    assert tailed.content_hash != balanced.content_hash
    assert tailed.content_hash != load(cifar, imbalance=5, tail_seed=1).content_hash
    assert tailed.facts["train_size"] == sum(counts)
    assert tailed.facts["few_classes"] == sum(count < 2 for count in counts) == len(tailed.shots["few"])


def test_a_smaller_training_side_stays_balanced(cifar: Path) -> None:
    whole, smaller = load(cifar), load(cifar, train_size=230)
    assert smaller.train.targets.bincount(minlength=100).tolist() == 30 * [3] + 70 * [2]
    assert torch.equal(smaller.test.inputs, whole.test.inputs)
    assert smaller.shots is None
    assert smaller.content_hash not in (whole.content_hash, load(cifar, train_size=230, tail_seed=1).content_hash)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"train_size": 501}, r"data\.train_size=501 is not allowed: class 0 has 5 examples, 6 are to be kept"),
        ({"train_size": 99}, r"data\.train_size=99 is not allowed; it must be at least 100"),
        ({"train_size": 230, "imbalance": 10.0}, r"data\.train_size=230 .* beside data\.imbalance=10; give one"),
    ],
)
def test_a_training_side_that_cannot_be_is_refused(cifar: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        load(cifar, **changes)


def test_the_standard_augmentation_changes_images(cifar: Path) -> None:
    data = load(cifar, augmentation="standard")
    images = data.train.inputs[:10]
    changed = data.augment(images, torch.arange(10))
    assert changed.shape == images.shape
    assert not torch.equal(changed, images)


def test_a_missing_file_is_named_with_the_remedy(own_cifar: Path) -> None:
    (own_cifar / "cifar100" / "test.parquet").unlink()
    with pytest.raises(DataError, match=r"(?s)test\.parquet.*fetch it again.*paths\.data=null"):
        load(own_cifar)


def test_a_truncated_file_is_named(own_cifar: Path) -> None:
    file = own_cifar / "cifar100" / "train.parquet"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"(?s)train\.parquet.*fetch it again"):
        load(own_cifar)


def test_a_folder_without_the_set_says_what_it_must_hold(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"(?s)cifar100/train\.parquet.*cifar-100-python"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda content: content[:-1], "199 examples, 200 are expected"),
        (lambda content: [{"fine_label": row["fine_label"]} for row in content], "img"),
        (lambda content: [*content[:-1], content[-1] | {"fine_label": None}], "row 199: fine_label is None"),
        (lambda content: [*content[:-1], content[-1] | {"fine_label": 100}], "row 199: fine_label is 100, allowed"),
        (lambda content: [*content[:-1], content[-1] | {"fine_label": 0}], "not of equal size"),
        (lambda content: [*content[:-1], content[-1] | {"img": {"bytes": b"no image"}}], "row 199.*cannot be decoded"),
        (
            lambda content: [*content[:-1], content[-1] | {"img": {"bytes": encoded(slope(16, 32))}}],
            "row 199.*not 32 × 32",
        ),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(own_cifar: Path, wrong, said: str) -> None:
    write_cifar(own_cifar, "test", wrong(cifar_rows("test")))
    with pytest.raises(DataError, match=rf"(?s)test\.parquet.*{said}.*fetch it again"):
        load(own_cifar, expected_examples=CIFAR_SIZES)


def test_an_image_of_a_user_becomes_pixels_of_the_right_size(cifar: Path, tmp_path: Path) -> None:
    data = module(cifar)
    for number, (image, expected) in enumerate(
        [
            (Image.fromarray(CIFAR_PIXELS[7]), CIFAR_PIXELS[7]),
            (slope(48, 40), np.asarray(slope(48, 40).resize((32, 32)))),
            (slope().convert("L"), np.asarray(slope().convert("L").convert("RGB").resize((32, 32)))),
        ]
    ):
        file = tmp_path / f"{number}.png"
        file.write_bytes(encoded(image))
        inputs, names = data.encode(file)
        assert inputs.dtype == torch.uint8
        assert torch.equal(inputs, torch.tensor(expected).permute(2, 0, 1)[None]), f"image {number}"
        assert names == ["resized to 32 × 32"]
