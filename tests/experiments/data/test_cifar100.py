"""CIFAR-100 from a folder, the hub and torchvision."""

import functools
import io
import pickle
from pathlib import Path

import numpy as np
import pyarrow
import pytest
import torch
from PIL import Image
from pyarrow import parquet

from experiments import cifar100
from experiments.data.cifar100 import load_cifar100
from experiments.errors import DataError
from experiments.settings import Cifar100Settings, ShotSettings

PIXELS = np.random.default_rng(0).integers(0, 256, (500, 32, 32, 3), dtype=np.uint8)
LABELS = {"train": np.arange(500) % 100, "test": np.arange(200) % 100}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar100, "SIZES", {side: len(labels) for side, labels in LABELS.items()})


def settings(imbalance: float = 1, tail_seed: int = 0, augmentation: str = "none", source: str = "hub"):
    shots = ShotSettings(rule="mine", many_above=4, few_below=2)
    return Cifar100Settings("cifar100", source, augmentation, 4, imbalance, tail_seed, shots)


def encoded(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


@functools.cache
def rows(side: str) -> list[dict]:
    return [
        {"img": {"bytes": encoded(PIXELS[i]), "path": None}, "fine_label": int(label), "coarse_label": 0}
        for i, label in enumerate(LABELS[side])
    ]


def write(folder: Path, side: str, content: list[dict]) -> Path:
    (folder / "cifar100").mkdir(exist_ok=True)
    file = folder / "cifar100" / f"{side}.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(content), file)
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for side in LABELS:
        write(tmp_path, side, rows(side))
    return tmp_path


def test_pixels_and_labels_are_those_of_the_files(folder: Path) -> None:
    data = load_cifar100(settings(), folder)
    assert data.train.inputs.dtype == torch.uint8
    assert torch.equal(data.train.inputs, torch.from_numpy(PIXELS).permute(0, 3, 1, 2))
    assert torch.equal(data.test.inputs, data.train.inputs[:200])
    assert data.test.targets.tolist() == LABELS["test"].tolist()
    assert len(data.class_names) == 100
    assert data.shots is None
    assert data.augment is None


def test_torchvisions_folder_gives_the_same(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = tmp_path / "other" / "cifar-100-python"
    there.mkdir(parents=True)
    for side, labels in LABELS.items():
        data = PIXELS[: len(labels)].transpose(0, 3, 1, 2).reshape(len(labels), -1)
        (there / side).write_bytes(pickle.dumps({"data": data, "fine_labels": labels.tolist()}))
    (there / "meta").write_bytes(pickle.dumps({"fine_label_names": [str(n) for n in range(100)]}))
    monkeypatch.setattr("torchvision.datasets.CIFAR100._check_integrity", lambda _: True)
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *_: True)
    found, expected = load_cifar100(settings(), tmp_path / "other"), load_cifar100(settings(), folder)
    assert torch.equal(found.train.inputs, expected.train.inputs)
    assert torch.equal(found.test.targets, expected.test.targets)
    assert found.split_hash == expected.split_hash


def test_the_hub_gives_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Rows(list):
        def cast_column(self, name: str, encoding: object) -> "Rows":
            assert name == "img"
            assert encoding.decode is False
            return self

    monkeypatch.setattr("datasets.load_dataset", lambda name, split: Rows(rows(split)))
    found, expected = load_cifar100(settings(), None), load_cifar100(settings(), folder)
    assert torch.equal(found.train.inputs, expected.train.inputs)
    assert found.split_hash == expected.split_hash


def test_an_unreachable_hub_names_the_other_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr("datasets.load_dataset", fail)
    with pytest.raises(DataError, match=r"(?s)no route.*paths\.data.*data\.source=torchvision"):
        load_cifar100(settings(), None)


def test_a_long_tail_thins_out_the_training_side_alone(folder: Path) -> None:
    balanced, tailed = load_cifar100(settings(), folder), load_cifar100(settings(imbalance=5), folder)
    counts = tailed.train.targets.bincount(minlength=100).tolist()
    assert counts == [int(5 * 5 ** (-i / 99)) for i in range(100)]
    assert torch.equal(tailed.test.inputs, balanced.test.inputs)
    assert tailed.split_hash != balanced.split_hash
    assert tailed.split_hash != load_cifar100(settings(imbalance=5, tail_seed=1), folder).split_hash
    assert tailed.facts["train_size"] == sum(counts)
    assert tailed.facts["few_classes"] == sum(count < 2 for count in counts) == len(tailed.shots["few"])


def test_the_standard_augmentation_changes_images(folder: Path) -> None:
    data = load_cifar100(settings(augmentation="standard"), folder)
    images = data.train.inputs[:10]
    changed = data.augment(images, torch.arange(10))
    assert changed.shape == images.shape
    assert not torch.equal(changed, images)


def test_a_missing_file_is_named_with_the_remedy(folder: Path) -> None:
    (folder / "cifar100" / "test.parquet").unlink()
    with pytest.raises(DataError, match=r"(?s)test\.parquet.*fetch it again.*paths\.data=null"):
        load_cifar100(settings(), folder)


def test_a_truncated_file_is_named(folder: Path) -> None:
    file = folder / "cifar100" / "train.parquet"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"(?s)train\.parquet.*fetch it again"):
        load_cifar100(settings(), folder)


def test_a_folder_without_the_set_says_what_it_must_hold(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"(?s)cifar100/train\.parquet.*cifar-100-python"):
        load_cifar100(settings(), tmp_path)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda content: content[:-1], "199 images, 200 are expected"),
        (lambda content: [{"fine_label": row["fine_label"]} for row in content], "img"),
        (lambda content: [*content[:-1], content[-1] | {"fine_label": None}], "'fine_label' is missing or has gaps"),
        (lambda content: [*content[:-1], content[-1] | {"fine_label": 100}], "not of equal size"),
        (lambda content: [*content[:-1], content[-1] | {"fine_label": 0}], "not of equal size"),
        (lambda content: [*content[:-1], content[-1] | {"img": {"bytes": b"no image"}}], "row 199.*cannot be decoded"),
        (
            lambda content: [*content[:-1], content[-1] | {"img": {"bytes": encoded(PIXELS[0][:16])}}],
            "row 199.*not 32 × 32",
        ),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(folder: Path, wrong, said: str) -> None:
    write(folder, "test", wrong(rows("test")))
    with pytest.raises(DataError, match=rf"(?s)test\.parquet.*{said}.*fetch it again"):
        load_cifar100(settings(), folder)
