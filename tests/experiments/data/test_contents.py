"""The hash of the contents: whatever changes in a data set changes it, and nothing else does."""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset
from torchvision.datasets import ImageFolder

from experiments.data import contents
from experiments.data.airline import AirlineDataModule
from experiments.data.base import SplitDataModule
from experiments.data.cifar100 import Cifar100DataModule
from experiments.data.imagenet import ImagenetDataModule
from experiments.data.parallel_corpus import ParallelCorpusDataModule
from experiments.data.photographs import ImageFiles, ImageRows
from experiments.data.torch_datasets import DatasetExamples, TorchDatasetModule
from tests.experiments.data.generated import (
    ENGLISH,
    GERMAN,
    HEADER,
    cifar_rows,
    encoded,
    lines,
    slope,
    tweets,
    write_cifar,
    write_pairs,
    write_tweets,
)
from tests.experiments.data.support import BATCHES, SmallDataModule, small_data
from tests.experiments.data.test_imagenet import SETTINGS as PHOTOGRAPHS
from tests.experiments.data.test_parallel_corpus import SETTINGS as CORPUS

Spoil = Callable[[Path], object]


def content_hash(data: SplitDataModule) -> str:
    data.setup()
    return data.data.content_hash


def of_tweets(folder: Path) -> str:
    settings = {"max_length": 6, "minimum_count": 1, "test_fraction": 0.2, "split_seed": 21}
    return content_hash(AirlineDataModule(folder=folder, **settings, **BATCHES))


def of_cifar(folder: Path) -> str:
    return content_hash(Cifar100DataModule(folder=folder, **BATCHES))


def of_pairs(folder: Path) -> str:
    return content_hash(ParallelCorpusDataModule(folder=folder, **CORPUS | BATCHES))


def of_photographs(folder: Path) -> str:
    return content_hash(ImagenetDataModule(folder=folder, **PHOTOGRAPHS | BATCHES))


def all_differ(folder: Path, of: Callable[[Path], str], spoils: dict[str, Spoil]) -> None:
    """Each change of the data, made after the one before, gives a hash of its own; what changes nothing gives none."""
    found = {"as written": of(folder)}
    for name, spoil in spoils.items():
        spoil(folder)
        found[name] = of(folder)
    again = of(folder)
    assert found.popitem()[1] == again
    assert len(set(found.values())) == len(found), found
    assert all(len(value) == 64 for value in found.values())


@pytest.mark.medium
def test_whatever_changes_among_tweets(tweets_folder: Path) -> None:
    def written(change: Callable[[list[list[str]]], list[list[str]]]) -> Spoil:
        return lambda folder: write_tweets(folder, change(tweets()))

    def relabelled(rows: list[list[str]]) -> list[list[str]]:
        return [[*rows[0][:1], "neutral", *rows[0][2:]], *rows[1:]]

    spoils = {
        "every tweet reversed": written(lambda rows: [[*row[:3], " ".join(row[3].split()[::-1])] for row in rows]),
        "rows reordered": written(lambda rows: rows[::-1]),
        "a label": written(relabelled),
        "cut at a line end": written(lambda rows: rows[:-1]),
        "a word": written(lambda rows: [*rows[:-1], [*rows[-1][:3], "the early flight"]]),
        "a doubled line": written(lambda rows: [*rows, rows[-1]]),
    }
    all_differ(tweets_folder, of_tweets, spoils)


def test_a_column_that_is_not_read_changes_nothing(tweets_folder: Path) -> None:
    before = of_tweets(tweets_folder)
    write_tweets(tweets_folder, [[*row[:2], "someone else", row[3]] for row in tweets()])
    assert of_tweets(tweets_folder) == before
    assert HEADER[2] == "name"


@pytest.mark.medium
def test_whatever_changes_in_cifar(tmp_path: Path) -> None:
    def written(side: str, change: Callable[[list[dict]], list[dict]]) -> Spoil:
        return lambda folder: write_cifar(folder, side, change(cifar_rows(side)))

    def brighter(rows: list[dict]) -> list[dict]:
        pixels = np.zeros((32, 32, 3), dtype=np.uint8)
        pixels[31, 31, 2] = 1
        return [rows[0] | {"img": {"bytes": encoded(Image.fromarray(pixels))}}, *rows[1:]]

    for side in ("train", "test"):
        write_cifar(tmp_path, side, cifar_rows(side))
    spoils = {
        "training rows reordered": written("train", lambda rows: rows[::-1]),
        "test rows reordered": written("test", lambda rows: rows[::-1]),
        "two labels exchanged": written(
            "test", lambda rows: [rows[0] | {"fine_label": 1}, rows[1] | {"fine_label": 0}, *rows[2:]]
        ),
        "a row less": written("test", lambda rows: rows[:-1]),
        "a pixel": written("test", brighter),
    }
    all_differ(tmp_path, of_cifar, spoils)


def test_whatever_changes_in_a_parallel_corpus(pairs_folder: Path) -> None:
    def written(split: str, german: list[str], english: list[str]) -> Spoil:
        return lambda folder: write_pairs(folder, split, lines(german), lines(english))

    spoils = {
        "test sentences reversed": written("test", GERMAN[::-1], ENGLISH[::-1]),
        "one side alone": written("test", GERMAN, ENGLISH[::-1]),
        "a letter that training never showed": written("test", ["日本", *GERMAN[1:]], ENGLISH),
        "another such letter": written("test", ["日木", *GERMAN[1:]], ENGLISH),
        "a pair less in dev": written("val", GERMAN[:-1], ENGLISH[:-1]),
        "training reordered": written("train", GERMAN[::-1], ENGLISH[::-1]),
    }
    all_differ(pairs_folder, of_pairs, spoils)


@pytest.fixture
def few_photographs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two classes in place of a thousand, of two images on each side."""
    monkeypatch.setattr("experiments.data.imagenet.CLASSES", 2)
    for side in ("train", "val"):
        for number, wnid in enumerate(("n00000000", "n00000001")):
            (tmp_path / "photos" / side / wnid).mkdir(parents=True)
            for image in range(2):
                file = tmp_path / "photos" / side / wnid / f"{image}.JPEG"
                file.write_bytes(encoded(slope(20 + 2 * number + image), "JPEG"))
    return tmp_path


def test_whatever_changes_among_photographs(few_photographs: Path) -> None:
    def folder_of(home: Path, number: int, side: str = "train") -> Path:
        return home / "photos" / side / f"n0000000{number}"

    def exchange(home: Path) -> None:
        first, second = (folder_of(home, 0) / f"{number}.JPEG" for number in range(2))
        contents = first.read_bytes(), second.read_bytes()
        second.write_bytes(contents[0])
        first.write_bytes(contents[1])

    def relabel(home: Path) -> None:
        (folder_of(home, 0) / "1.JPEG").rename(folder_of(home, 1) / "0a.JPEG")

    def flip(home: Path) -> None:
        file = folder_of(home, 1, "val") / "1.JPEG"
        content = bytearray(file.read_bytes())
        content[-20] ^= 1
        file.write_bytes(bytes(content))

    def break_off(home: Path) -> None:
        (folder_of(home, 1) / "1.JPEG").unlink()
        (folder_of(home, 1) / "1.JPEG").mkdir()

    spoils = {
        "two images of a class exchanged": exchange,
        "an image in another class": relabel,
        "a bit": flip,
        "an image less": lambda home: (folder_of(home, 0, "val") / "1.JPEG").unlink(),
        "a folder in place of an image": break_off,
    }
    all_differ(few_photographs, of_photographs, spoils)


# Images of which the hash is kept


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of kept hashes, which keeps those of small files too."""
    monkeypatch.setattr(contents, "KEPT_HASHES", tmp_path / "hashes")
    monkeypatch.setattr(contents, "KEPT_FROM", 1)
    monkeypatch.setattr(contents, "_PART", 3)
    return tmp_path / "hashes"


class Counted(ImageFiles):
    """Counts how often an image was read."""

    def encoded(self, index: int) -> bytes:
        vars(self)["read"] = vars(self).get("read", 0) + 1
        return super().encoded(index)


def counted(folder: Path, *names: str) -> tuple[bytes, int]:
    images = Counted(str(folder), np.array([os.fsencode(name) for name in names]))
    return contents.image_digest(images, len(names), "here"), vars(images).get("read", 0)


def test_images_are_hashed_once_until_they_change(tmp_path: Path, kept: Path) -> None:
    names = [f"{number}.png" for number in range(7)]
    for number, name in enumerate(names):
        (tmp_path / name).write_bytes(encoded(slope(20 + number)))
    first, read = counted(tmp_path, *names)
    assert (read, len([*kept.iterdir()])) == (7, 3)
    assert counted(tmp_path, *names) == (first, 0)
    for file in kept.iterdir():
        file.write_bytes(file.read_bytes()[:-1])
    assert counted(tmp_path, *names) == (first, 7)  # damaged ones are computed again, and mended
    assert counted(tmp_path, *names) == (first, 0)
    content = bytearray((tmp_path / names[4]).read_bytes())
    content[-1] ^= 1
    (tmp_path / names[4]).write_bytes(bytes(content))  # of the same size
    changed, read = counted(tmp_path, *names)
    assert changed != first
    assert read == 3  # its part alone
    assert counted(tmp_path, *reversed(names))[0] not in (first, changed)


def test_an_image_that_repeats_is_read_once_and_one_that_is_missing_is_not_kept(tmp_path: Path, kept: Path) -> None:
    (tmp_path / "a.png").write_bytes(encoded(slope()))
    twice, read = counted(tmp_path, "a.png", "a.png")
    assert read == 1
    assert twice != counted(tmp_path, "a.png")[0]
    there = len([*kept.iterdir()])
    missing, _ = counted(tmp_path, "a.png", "b.png")
    assert len([*kept.iterdir()]) == there
    (tmp_path / "b.png").write_bytes(encoded(slope()))
    assert counted(tmp_path, "a.png", "b.png")[0] == twice != missing


def test_a_disk_that_cannot_be_written_to_is_no_error(
    tmp_path: Path, kept: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept.write_text("a file in place of the folder")
    (tmp_path / "a.png").write_bytes(encoded(slope()))
    assert counted(tmp_path, "a.png") == counted(tmp_path, "a.png")
    assert "cannot be" in caplog.text


def test_rows_of_a_table_on_disk_are_hashed_once(tmp_path: Path, kept: Path) -> None:
    import datasets

    images = [{"bytes": encoded(slope(20 + number)), "path": None} for number in range(4)]
    features = datasets.Features(image=datasets.Image(decode=False))
    memory = datasets.Dataset.from_dict({"image": images}, features=features)
    memory.save_to_disk(tmp_path / "table")
    disk = datasets.load_from_disk(tmp_path / "table")
    hashes = [
        contents.image_digest(ImageRows("hub", "train", table, np.arange(4)), 4, "hub")
        for table in (memory, disk, disk)
    ]
    assert len(set(hashes)) == 1
    assert len([*kept.iterdir()]) == 2  # of the table on disk, in two parts
    other = contents.image_digest(ImageRows("hub", "train", disk, np.array([0, 2, 1, 3])), 4, "hub")
    assert other not in hashes


def test_long_hashing_says_how_far_it_is(
    tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.png").write_bytes(encoded(slope()))
    counted(tmp_path, *["a.png"] * 7)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(contents, "_SILENT_SECONDS", 0.0)
    counted(tmp_path, *["a.png"] * 7)
    assert capsys.readouterr().err.startswith("hashing here: 3 of 7 after 0 s\n")


# Data sets of the user's own


class Pixels(Dataset[Any]):
    """Noise from every global generator, around the number of the example."""

    def __init__(self, shift: float = 0.0) -> None:
        self.targets, self.shift = [0, 1, 1, 0], shift

    def __getitem__(self, index: int) -> Any:
        noise = random.random() + np.random.rand() + float(torch.rand(()))  # noqa: NPY002
        return torch.tensor([index + self.shift, noise]), self.targets[index]

    def __len__(self) -> int:
        return 4


def of_datasets(train: Any, test: Any) -> str:
    return content_hash(TorchDatasetModule(train=train, test=test, **BATCHES))


def test_random_transforms_change_no_hash_and_leave_the_generators_alone() -> None:
    examples = DatasetExamples(Pixels(), torch.tensor(Pixels().targets))
    states = json.dumps([random.getstate(), torch.get_rng_state().tolist()])
    assert examples.digest() == examples.digest()
    assert json.dumps([random.getstate(), torch.get_rng_state().tolist()]) == states
    before = of_datasets(Pixels(), Pixels())
    assert of_datasets(Pixels(), Pixels()) == before
    assert len({before, of_datasets(Pixels(0.5), Pixels()), of_datasets(Pixels(), Pixels(0.5))}) == 3


def test_a_dataset_that_holds_its_data_is_not_read() -> None:
    class Held(Pixels):
        def __init__(self, data: Any) -> None:
            super().__init__()
            self.data, self.read = data, 0

        def __getitem__(self, index: int) -> Any:
            self.read += 1
            return super().__getitem__(index)

    array = np.arange(8).reshape(4, 2)
    held = Held(array)
    hashes = [of_datasets(held, held), of_datasets(Held(torch.from_numpy(array)), Held(array))]
    assert hashes[0] == hashes[1] != of_datasets(Held(array[::-1].copy()), Held(array))
    assert held.read == 1  # one input, for its shape
    reversed_bytes, reversed_sign = array.astype(">i8"), torch._neg_view(torch.from_numpy(-array))
    for strange, same in ((array[:, ::-1], array[:, ::-1].copy()), (reversed_bytes, array), (reversed_sign, array)):
        assert of_datasets(Held(strange), Held(array)) == of_datasets(Held(same), Held(array))
    assert of_datasets(Held(torch.eye(4).to_sparse()), Held(array.astype(np.longdouble)))  # read
    several = Held(["a", "b", "c", "d"])
    of_datasets(several, several)
    assert several.read == 9


def test_a_folder_of_images_is_hashed_by_its_files(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").write_bytes(encoded(slope()))

    def found() -> str:
        return of_datasets(ImageFolder(str(tmp_path)), ImageFolder(str(tmp_path)))

    before = found()
    (tmp_path / "dog" / "1.png").write_bytes(encoded(slope().rotate(180)))
    assert before != found()


def test_examples_without_a_digest_are_read() -> None:
    class Numbers:
        def __init__(self, first: int) -> None:
            self.targets, self.first = torch.arange(130) % 3, first

        def read(self, indices: torch.Tensor, seeds: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, list[str]]:
            return (indices[:, None] == 129) * float(self.first), self.targets[indices], []

    first, again, other = (content_hash(SmallDataModule(small_data(train=Numbers(number)))) for number in (1, 1, 2))
    assert first == again != other


def test_class_names_and_types_of_numbers_tell_data_apart() -> None:
    plain = content_hash(SmallDataModule())
    renamed = content_hash(SmallDataModule(small_data(class_names=("a", "b", "c"))))
    assert len({plain, renamed}) == 2
    digests = {
        contents.tensor_digest(torch.zeros(4, dtype=dtype)) for dtype in (torch.bfloat16, torch.bool, torch.int8)
    }
    assert len(digests | {contents.tensor_digest(torch.zeros(2, 2, dtype=torch.int8))}) == 4
