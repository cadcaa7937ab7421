"""Tiny ImageNet from a folder of parquet files, the official archive and the hub."""

import numpy as np
import pytest
import torch

from tests.experiments.data.generated import TINY_WNIDS, tiny_rows, tiny_table, write_tiny_archive
from tests.experiments.data.support import loaded

SIZES = {"train": 600, "test": 200}
pytestmark = pytest.mark.medium


def test_pixels_and_labels_are_those_of_the_files(folder_of):
    folder = folder_of("tiny_imagenet")
    data = loaded("tiny_imagenet", folder, expected_examples=SIZES)
    assert data.train.inputs.shape == (600, 3, 64, 64)
    assert data.train.inputs[1, :, 5, 5].tolist() == [1, 7, 9]
    assert len(set(data.train.inputs[50, :, 5, 5].tolist())) == 1  # a grey image has three equal channels
    assert data.train.targets.tolist() == np.repeat(np.arange(200), 3).tolist()
    assert data.test.targets.tolist() == [number * 3 % 200 for number in range(200)]
    assert data.class_names == tuple(TINY_WNIDS)
    first = loaded("tiny_imagenet", folder, images_per_class=2, expected_examples=SIZES | {"train": 400})
    assert torch.equal(first.train.inputs, data.train.inputs[torch.arange(600) % 3 < 2])


def test_archive_and_hub_give_the_same(folder_of, tmp_path, monkeypatch):
    names = TINY_WNIDS[::-1]  # the hub may name the classes in any order

    def on_hub(name, split):
        rows = [row | {"label": names.index(TINY_WNIDS[row["label"]])} for row in tiny_rows(split)]
        return tiny_table(rows, names)

    monkeypatch.setattr("datasets.load_dataset", on_hub)
    archive = write_tiny_archive(tmp_path / "other" / "tiny-imagenet-200")  # as Windows unpacks it
    annotations = archive / "val" / "val_annotations.txt"
    annotations.write_bytes(b"\xef\xbb\xbf" + annotations.read_bytes().replace(b"\n", b"\r\n"))
    places = (folder_of("tiny_imagenet"), tmp_path / "other", None)
    hashes = {loaded("tiny_imagenet", place, expected_examples=SIZES).content_hash for place in places}
    assert len(hashes) == 1
