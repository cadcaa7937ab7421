"""Small data sets in the files of the real ones."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.experiments.data import generated

Write = Callable[[str], Path]
Spoil = Callable[[Path], object]


def write_cifar100(folder: Path) -> None:
    for side in generated.CIFAR_LABELS:
        generated.write_cifar(folder, side, generated.cifar_rows(side))


def write_corpus(folder: Path) -> None:
    for split in ("train", "val", "test"):
        generated.write_pairs(folder, split, generated.GERMAN, generated.ENGLISH)


def write_tiny_imagenet(folder: Path) -> None:
    for side in ("train", "valid"):
        generated.write_tiny(folder, side, generated.tiny_rows(side))


WRITERS: dict[str, Callable[[Path], object]] = {
    "airline": lambda folder: generated.write_tweets(folder, generated.tweets()),
    "cifar100": write_cifar100,
    "tiny_imagenet": write_tiny_imagenet,
    "imagenet": generated.write_photos,
    "pairs": write_corpus,
    "digits": lambda folder: None,
}


@pytest.fixture(autouse=True)
def _small(monkeypatch, tmp_path):
    """ImageNet has three classes, ImageNet-LT six images; learned subwords are kept in the folder of the test."""
    for name, value in {"CLASSES": 3, "TAIL_SIZE": 6, "TAIL_LARGEST": 3, "TAIL_SMALLEST": 1}.items():
        monkeypatch.setattr(f"experiments.data.imagenet.{name}", value)
    monkeypatch.setattr("experiments.data.parallel_corpus.CACHE", tmp_path / "subwords")


@pytest.fixture
def folder_of(tmp_path):
    """Writes a small data set of this name, and gives its folder."""

    def write(name: str) -> Path:
        WRITERS[name](tmp_path)
        return tmp_path

    return write


@pytest.fixture
def tweets_folder(folder_of):
    return folder_of("airline")


@pytest.fixture
def pairs_folder(folder_of):
    return folder_of("pairs")


@pytest.fixture
def photos(folder_of):
    """A folder with one image a class on each side, and two more in the last class."""
    return folder_of("imagenet")


@pytest.fixture(scope="session")
def cifar(tmp_path_factory):
    """A folder with a small CIFAR-100, which the tests leave as it is."""
    folder = tmp_path_factory.mktemp("cifar")
    write_cifar100(folder)
    return folder
