"""Small data sets in the files of the real ones, written once for all tests, which leave them as they are."""

from pathlib import Path

import pytest

from tests.experiments.data.generated import (
    CIFAR_LABELS,
    ENGLISH,
    GERMAN,
    cifar_rows,
    lines,
    tweets,
    write_cifar,
    write_pairs,
    write_photos,
    write_tweets,
)


@pytest.fixture
def tweets_folder(tmp_path: Path) -> Path:
    write_tweets(tmp_path, tweets())
    return tmp_path


@pytest.fixture(scope="session")
def cifar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small CIFAR-100."""
    folder = tmp_path_factory.mktemp("cifar")
    for side in CIFAR_LABELS:
        write_cifar(folder, side, cifar_rows(side))
    return folder


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one image a class on each side, and nine more in the last class."""
    home = tmp_path_factory.mktemp("data")
    write_photos(home)
    return home


@pytest.fixture
def pairs_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a small parallel corpus, and a cache of subwords."""
    monkeypatch.setattr("experiments.data.parallel_corpus.CACHE", tmp_path / "subwords")
    for split in ("train", "val", "test"):
        write_pairs(tmp_path, split, lines(GERMAN), lines(ENGLISH))
    return tmp_path
