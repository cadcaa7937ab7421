"""A missing, a truncated or a wrong file, another number of examples, a wrong setting: each is one clear error."""

import os
import shutil
from typing import Any

import pytest

from experiments.errors import ConfigurationError, DataError, UserError
from tests.experiments.data.conftest import Spoil
from tests.experiments.data.generated import (
    ENGLISH,
    GERMAN,
    TINY_WNIDS,
    WNIDS,
    cifar_rows,
    encoded,
    slope,
    tiny_rows,
    write_cifar,
    write_pairs,
    write_tiny,
    write_tiny_archive,
)
from tests.experiments.data.support import loaded, ready, refusal, small

# The file of each data set that is damaged, and how many examples there are in each part.
FILES: dict[str, tuple[str, dict[str, int], str]] = {
    "airline": ("airline/Tweets.csv", {"all": 60}, "fetch Tweets.csv again"),
    "cifar100": ("cifar100/test.parquet", {"train": 500, "test": 200}, "fetch it again"),
    "tiny_imagenet": ("tiny_imagenet/valid.parquet", {"train": 600, "test": 200}, "fetch it again"),
    "pairs": ("pairs/val.en", {"train": 20, "dev": 20, "test": 20}, "again"),
}


@pytest.mark.medium
@pytest.mark.parametrize("name", FILES)
def test_damage(name, folder_of, tmp_path):
    path, there, remedy = FILES[name]
    file = folder_of(name) / path
    loaded(name, tmp_path, expected_examples=there)
    loaded(name, tmp_path)
    for part, count in there.items():
        for expected in (count - 1, count + 1):
            said = refusal(name, tmp_path, DataError, expected_examples=there | {part: expected})
            for words in (f"{count:,} examples, {expected:,} are expected", remedy, "data.expected_examples=null"):
                assert words in said, (part, words, said)
    content = file.read_bytes()
    for damage, spoil in {
        "truncated": lambda: file.write_bytes(content[: len(content) // 2]),
        "missing": file.unlink,
        "a pipe": lambda: os.mkfifo(file),
    }.items():
        spoil()
        said = refusal(name, tmp_path, DataError, expected_examples=there)
        assert str(file) in said, (damage, said)
        assert (f"{file.parent} holds " in said, "It is a pipe, not a file" in said) == (
            damage == "missing",
            damage == "a pipe",
        )
        assert remedy in said or "paths.data=" in said, (damage, said)


def tweets_with(old, new):
    def spoil(folder):
        file = folder / "airline/Tweets.csv"
        content = file.read_bytes()
        assert old in content
        file.write_bytes(content.replace(old, new, 1))

    return spoil


def cifar_with(**changes):
    rows = cifar_rows("test")
    return lambda folder: write_cifar(folder, "test", [*rows[:-1], rows[-1] | changes])


def tiny_with(names=TINY_WNIDS, **changes):
    rows = tiny_rows("valid")
    return lambda folder: write_tiny(folder, "valid", [*rows[:-1], rows[-1] | changes], names)


def archive_with(spoil):
    return lambda folder: spoil(write_tiny_archive(folder))


def pairs_with(german):
    return lambda folder: write_pairs(folder, "test", german, ENGLISH)


WRONG_FILES: list[tuple[str, Spoil, list[str]]] = [
    ("airline", tweets_with(b"airline_sentiment", b"label"), ["record 1: has no airline_sentiment"]),
    ("airline", tweets_with(b"100,negative", b"100,Negative"), ["record 1: airline_sentiment must be one of negative"]),
    ("airline", tweets_with(b"the late", b"the l\xe9te"), ["Tweets.csv: cannot be read", "byte 0xe9 in line 2"]),
    ("airline", tweets_with(b"100,neg", b"5.70306E+17,neg"), ["record 1: tweet_id=5.70306E+17 is not a whole number"]),
    ("cifar100", cifar_with(img={"bytes": b"no image"}), ["test.parquet, test, row 199: cannot be read"]),
    (
        "cifar100",
        cifar_with(img={"bytes": encoded(slope())}),
        ["row 199: cannot be read (24 × 16 pixels of class 99; 32"],
    ),
    ("cifar100", lambda home: write_cifar(home, "test", [{"fine_label": 0}]), ["test.parquet: cannot be read", "img"]),
    ("tiny_imagenet", tiny_with(label=-1), ["row 199: cannot be read (64 × 64 pixels of class -1; 64", "0 to 199"]),
    ("tiny_imagenet", tiny_with([*TINY_WNIDS[1:], "n99999999"]), ["has 200 classes, n99999999 among them; 200"]),
    (
        "tiny_imagenet",
        archive_with(lambda home: (home / "val/images/val_3.JPEG").write_bytes(b"no image")),
        ["tiny-imagenet-200/val/images/val_3.JPEG: cannot be read"],
    ),
    ("pairs", pairs_with(GERMAN[:-1]), ["test.de has 19 lines, but", "test.en has 20"]),
    ("pairs", pairs_with([""] * 20), ["pairs, test: data.max_length=30 leaves no pair"]),
    (
        "imagenet",
        lambda home: shutil.rmtree(home / "photos/val"),
        ["photos: cannot be read", "photos holds train/; ", "data.test_folder"],
    ),
    (
        "imagenet",
        lambda home: [file.rename(file.with_name("goldfish")) for file in home.glob(f"photos/*/{WNIDS[1]}")],
        ["the class folder goldfish must be named by its WordNet id, as n01440764"],
    ),
    (
        "imagenet",
        lambda home: shutil.rmtree(home / "photos/train" / WNIDS[1]),
        ["2 class folders in train and 3 in val; both must have the same 3"],
    ),
    ("imagenet", lambda home: next((home / "photos/val" / WNIDS[1]).iterdir()).unlink(), ["photos: ", WNIDS[1]]),
]
WRONG_ARCHIVES: list[tuple[str, Spoil, list[str]]] = [
    (
        "tiny_imagenet",
        archive_with(lambda home: shutil.rmtree(home / "train" / TINY_WNIDS[5])),
        ["train: has 199 classes; 200"],
    ),
    (
        "tiny_imagenet",
        archive_with(lambda home: (home / "train").rename(home / "training")),
        ["train: cannot be read (no train/<wnid>/images/*.JPEG; ", "holds training/, val/)"],
    ),
    (
        "tiny_imagenet",
        archive_with(lambda home: (home / "train" / TINY_WNIDS[5]).rename(home / "train/goldfish")),
        ["has 200 classes, goldfish among them; 200"],
    ),
    (
        "tiny_imagenet",
        archive_with(lambda home: (home / "val/val_annotations.txt").write_text("val_0.JPEG\tgoldfish")),
        ["test: has 1 classes, goldfish among them; 200"],
    ),
]


@pytest.mark.parametrize(
    ("name", "spoil", "parts"),
    [*WRONG_FILES, *(pytest.param(*one, marks=pytest.mark.medium) for one in WRONG_ARCHIVES)],
)
def test_a_wrong_file(name, spoil, parts, folder_of):
    folder = folder_of(name)
    spoil(folder)
    said = refusal(name, folder, DataError)
    for part in [*parts, str(folder)]:
        assert part in said, said
    assert "\n" not in said


@pytest.mark.parametrize("workers", [0, 1])
def test_an_image_that_cannot_be_read_is_named(photos, workers):
    file = photos / f"photos/train/{WNIDS[2]}/{WNIDS[2]}_1.JPEG"
    data = ready("imagenet", photos, num_workers=workers)
    file.write_bytes(encoded(slope(), "JPEG")[:300])
    with pytest.raises(DataError) as caught:
        list(data.train_dataloader())
    assert str(caught.value).startswith(f"ImageFolder, example 3, {file}: cannot be read (")


WRONG_SETTINGS: list[tuple[str, dict[str, Any], str]] = [
    ("airline", {"validation_fraction": 0.98}, "data.validation_fraction=0.98 is not allowed; no example of class"),
    ("airline", {"validation_fraction": 1e-6}, "validation_fraction=1e-06 is not allowed; it leaves no validation"),
    ("digits", {"test_fraction": 0.0001}, "data.test_fraction=0.0001 is not allowed; no example of class '0'"),
    ("cifar100", {"train_size": 501}, "data.train_size=501 is not allowed: class 0 has 5 examples, 6 are to be kept"),
    ("cifar100", {"train_size": 99}, "data.train_size=99 is not allowed: it must be at least 100"),
    ("cifar100", {"train_size": 230, "imbalance": 10.0}, "the number of classes, and data.imbalance=1"),
    ("pairs", {"vocabulary_size": 5000}, "data.vocabulary_size=5000 is not allowed"),
    ("copy", {"shortest": 3, "longest": 2}, "at most half of the 0 sentences"),
    ("copy", {"longest": 2, "train_size": 1000}, "ask for 1040 different sentences"),
]


@pytest.mark.parametrize(("name", "changes", "said"), WRONG_SETTINGS)
def test_a_wrong_setting(name, changes, said, folder_of):
    folder = None if name == "copy" else folder_of(name)
    assert said in refusal(name, folder, ConfigurationError, **changes)


# The Hugging Face hub


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("airline", "paths.data=FOLDER, a folder that holds airline/Tweets.csv"),
        ("cifar100", "data.source=torchvision"),
        ("tiny_imagenet", "paths.data=FOLDER"),
        ("imagenet", "log in with `hf auth login`, or give paths.data=FOLDER"),
        ("pairs", "paths.data=FOLDER, a folder that holds pairs/train.de and .en"),
    ],
)
def test_a_hub_out_of_reach(name, remedy, monkeypatch):
    def refuse(*_, **__):
        raise ConnectionError("no route")

    monkeypatch.setattr("datasets.load_dataset", refuse)
    said = refusal(name, None, DataError)
    assert "no route" in said
    assert remedy in said


def test_counts_are_of_the_whole_data_set(cifar):
    """Neither a long tail nor a validation part changes the number that is expected."""
    options = {"imbalance": 5.0, "validation_fraction": 0.2, "expected_examples": FILES["cifar100"][1]}
    assert len(loaded("cifar100", cifar, **options).train.targets) < 400


# A user's own file


def test_a_file_for_a_prediction_is_read_or_refused_by_its_name(tmp_path):
    with pytest.raises(UserError, match="SmallDataModule cannot read inputs from a file"):
        small().encode(tmp_path / "mine.txt")
    (tmp_path / "latin.txt").write_bytes(b"w4\ncaf\xe9\n")
    os.mkfifo(tmp_path / "pipe.txt")
    for name, why in {
        "gone.txt": "No such file or directory",
        "latin.txt": "not a text in UTF-8: byte 0xe9 in line 2",
        "pipe.txt": "It is a pipe, not a file",
        "": "It is a folder, not a file",
    }.items():
        with pytest.raises(DataError, match=rf"{name}: cannot be read as input of CopyDataModule \(.*{why}"):
            ready("copy").encode(tmp_path / name)
