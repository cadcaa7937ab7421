"""Tiny ImageNet from a folder of parquet files, the official archive and the hub."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from experiments.data.examples import ClassificationData
from experiments.data.tiny_imagenet import TinyImagenetDataModule
from experiments.errors import DataError
from tests.experiments.data.generated import TINY_WNIDS, tiny_rows, tiny_table, write_tiny, write_tiny_archive
from tests.experiments.data.support import BATCHES

SIZES = {"train": 600, "test": 200}


def load(folder: Path | None, **changes: Any) -> ClassificationData:
    data = TinyImagenetDataModule(folder=folder, **{"expected_examples": SIZES} | changes, **BATCHES)
    data.setup()
    return data.data


@pytest.fixture
def parquet_files(tmp_path: Path) -> Path:
    for side in ("train", "valid"):
        write_tiny(tmp_path, side, tiny_rows(side))
    return tmp_path


def test_pixels_and_labels_are_those_of_the_files(parquet_files: Path) -> None:
    data = load(parquet_files)
    assert data.train.inputs.shape == (600, 3, 64, 64)
    assert data.train.inputs[1, :, 5, 5].tolist() == [1, 7, 9]
    assert len(set(data.train.inputs[50, :, 5, 5].tolist())) == 1  # a grey image has three equal channels
    assert data.train.targets.tolist() == np.repeat(np.arange(200), 3).tolist()
    assert data.test.targets.tolist() == [number * 3 % 200 for number in range(200)]
    assert data.class_names == tuple(TINY_WNIDS)


def test_the_official_archive_gives_the_same(parquet_files: Path, tmp_path: Path) -> None:
    write_tiny_archive(tmp_path / "other")
    found, expected = load(tmp_path / "other"), load(parquet_files)
    assert torch.equal(found.train.inputs, expected.train.inputs)
    assert found.content_hash == expected.content_hash


def test_the_hub_gives_the_same_in_any_order_of_its_names(parquet_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = TINY_WNIDS[::-1]

    def on_hub(name: str, split: str) -> Any:
        rows = [row | {"label": names.index(TINY_WNIDS[row["label"]])} for row in tiny_rows(split)]
        return tiny_table(rows, names)

    monkeypatch.setattr("datasets.load_dataset", on_hub)
    assert load(None).content_hash == load(parquet_files).content_hash


def test_the_first_images_of_each_class_are_kept(parquet_files: Path) -> None:
    data = load(parquet_files, images_per_class=2, expected_examples={"train": 400, "test": 200})
    assert torch.equal(data.train.inputs, load(parquet_files).train.inputs[torch.arange(600) % 3 < 2])
    with pytest.raises(DataError, match=r"400 examples, 600 are expected"):
        load(parquet_files, images_per_class=2)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda file: file.unlink(), "cannot be read"),
        (lambda file: file.write_bytes(file.read_bytes()[:-100]), "cannot be read"),
        (lambda file: write_tiny(file.parents[1], "valid", tiny_rows("valid")[1:]), "199 examples, 200 are expected"),
        (
            lambda file: write_tiny(file.parents[1], "valid", [*tiny_rows("valid")[1:], tiny_rows("valid")[1]]),
            "not of equal size",
        ),
    ],
)
def test_a_wrong_file_is_named_with_the_remedy(parquet_files: Path, spoil: Any, said: str) -> None:
    spoil(parquet_files / "tiny_imagenet" / "valid.parquet")
    with pytest.raises(DataError, match=rf"(?s)valid\.parquet.*{said}.*fetch it again"):
        load(parquet_files)


def test_an_incomplete_archive_is_named(tmp_path: Path) -> None:
    write_tiny_archive(tmp_path)
    (tmp_path / "tiny-imagenet-200/val/images/val_7.JPEG").unlink()
    with pytest.raises(DataError, match=r"(?s)tiny-imagenet-200, test: cannot be read.*val_7\.JPEG.*fetch it again"):
        load(tmp_path)
    (tmp_path / "tiny-imagenet-200/train" / TINY_WNIDS[0]).rename(tmp_path / "elsewhere")
    with pytest.raises(DataError, match=r"has 199 classes; 200 are expected"):
        load(tmp_path)
