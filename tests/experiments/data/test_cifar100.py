"""CIFAR-100 from a folder, the hub and torchvision, and random changes of its images, each image's own."""

import pickle

import numpy as np
import pytest
import torch
from datasets import Dataset
from filelock import FileLock, Timeout
from PIL import Image
from torch.nn.functional import pad

from experiments.data.randomness import sample_seeds
from experiments.data.small_images import CropAndFlip
from experiments.errors import DataError
from tests.experiments.data.generated import CIFAR_LABELS, CIFAR_PIXELS, cifar_rows, encoded, slope
from tests.experiments.data.support import loaded, ready, refusal


@pytest.mark.medium
def test_torchvisions_folder_gives_the_same(cifar, tmp_path, monkeypatch):
    (tmp_path / "cifar-100-python.tar.gz").touch()
    said = refusal("cifar100", tmp_path, DataError)
    assert f"{tmp_path} holds cifar-100-python.tar.gz: '{tmp_path}/cifar100/train.parquet'" in said
    assert "unpack the official archive there, to cifar-100-python" in said
    there = tmp_path / "cifar100" / "cifar-100-python"
    there.mkdir(parents=True)
    for side, labels in CIFAR_LABELS.items():
        data = CIFAR_PIXELS[: len(labels)].transpose(0, 3, 1, 2).reshape(len(labels), -1)
        (there / side).write_bytes(pickle.dumps({"data": data, "fine_labels": labels.tolist()}))
    (there / "meta").write_bytes(pickle.dumps({"fine_label_names": [str(n) for n in range(100)]}))
    said = refusal("cifar100", tmp_path, DataError)  # these files are not the published ones
    assert f"{there} holds meta, test, train; the published files train, test and meta are expected, with" in said
    monkeypatch.setattr("torchvision.datasets.CIFAR100._check_integrity", lambda _: True)
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *_: True)
    assert loaded("cifar100", tmp_path).content_hash == loaded("cifar100", cifar).content_hash
    (tmp_path / "cifar100" / "train.parquet").symlink_to(cifar / "cifar100" / "train.parquet")
    said = refusal("cifar100", tmp_path, DataError)  # parquet files come first, and no split comes from elsewhere
    assert f"{tmp_path}/cifar100 holds cifar-100-python/, train.parquet" in said


@pytest.mark.parametrize(
    "below", [pytest.param("", marks=pytest.mark.medium), "data", pytest.param("cifar100", marks=pytest.mark.medium)]
)
def test_files_by_the_names_of_the_hub_give_the_same(below, cifar, tmp_path):
    for side in CIFAR_LABELS:
        file = tmp_path / "cifar100" / below / f"{side}-00000-of-00001.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to(cifar / "cifar100" / f"{side}.parquet")
    assert loaded("cifar100", tmp_path).content_hash == loaded("cifar100", cifar).content_hash


def test_one_process_at_a_time_downloads_by_torchvision(tmp_path, monkeypatch):
    def download(*_, **__):
        with pytest.raises(Timeout):
            FileLock("data/cifar100.lock", timeout=0).acquire()
        raise OSError("no route")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torchvision.datasets.CIFAR100", download)
    assert "no route" in refusal("cifar100", None, DataError, source="torchvision")


@pytest.mark.medium
def test_the_hub_gives_the_same(cifar, monkeypatch):
    monkeypatch.setattr("datasets.load_dataset", lambda name, split: Dataset.from_list(cifar_rows(split)))
    assert loaded("cifar100").content_hash == loaded("cifar100", cifar).content_hash


@pytest.mark.medium
def test_a_long_tail_thins_out_the_training_side_alone(cifar):
    balanced, tailed = loaded("cifar100", cifar), loaded("cifar100", cifar, imbalance=5.0)
    counts = tailed.train.targets.bincount(minlength=100).tolist()
    assert counts == [int(5 * 5 ** (-i / 99)) for i in range(100)]
    assert torch.equal(tailed.test.inputs, balanced.test.inputs)
    assert tailed.content_hash != balanced.content_hash
    assert tailed.content_hash != loaded("cifar100", cifar, imbalance=5.0, tail_seed=1).content_hash
    assert tailed.facts["train_size"] == sum(counts)
    assert tailed.facts["few_classes"] == sum(count < 2 for count in counts) == len(tailed.shots["few"])


def test_a_smaller_training_side_stays_balanced(cifar):
    whole, smaller = loaded("cifar100", cifar), loaded("cifar100", cifar, train_size=230)
    assert smaller.train.targets.bincount(minlength=100).tolist() == 30 * [3] + 70 * [2]
    assert torch.equal(smaller.test.inputs, whole.test.inputs)
    assert smaller.shots is None
    other_seed = loaded("cifar100", cifar, train_size=230, tail_seed=1)
    assert smaller.content_hash not in (whole.content_hash, other_seed.content_hash)


def test_an_image_of_a_user_becomes_pixels_of_the_right_size(cifar, tmp_path):
    data = ready("cifar100", cifar)
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


# The standard augmentation

IMAGES = torch.randint(1, 256, (50, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
SEEDS = sample_seeds(21, 0, torch.arange(50))


def test_the_standard_augmentation_changes_images(cifar):
    data = loaded("cifar100", cifar, augmentation="standard")
    images = data.train.inputs[:10]
    changed = data.augment(images, torch.arange(10))
    assert changed.shape == images.shape
    assert not torch.equal(changed, images)


def test_every_crop_and_mirror_image_comes_up_alike():
    image = IMAGES[:1]
    seeds = sample_seeds(0, 0, torch.arange(5000))
    changed = CropAndFlip(2)(image.expand(5000, -1, -1, -1), seeds)
    padded = pad(image[0], (2,) * 4)
    crops = [padded[:, down : down + 8, right : right + 8] for down in range(5) for right in range(5)]
    mirrored = [crop.flip(-1) for crop in crops]
    times = [(changed == crop).all((1, 2, 3)).sum().item() for crop in crops + mirrored]
    assert sum(times) == 5000
    assert min(times) > 60  # 100 each, and a standard deviation of 10
    assert max(times) < 140


def test_an_image_is_changed_alike_in_any_batch():
    whole = CropAndFlip(4)(IMAGES, SEEDS)
    assert torch.equal(CropAndFlip(4)(IMAGES[7:9], SEEDS[7:9]), whole[7:9])
    assert not torch.equal(CropAndFlip(4)(IMAGES, sample_seeds(21, 1, torch.arange(50))), whole)
