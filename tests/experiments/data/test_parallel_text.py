"""Sentence pairs as text, from files and from the hub."""

from collections.abc import Callable
from pathlib import Path

import datasets
import pytest

from experiments.data.parallel_text import Corpus, read_parallel_text
from experiments.errors import DataError
from tests.experiments.data.generated import ENGLISH, GERMAN, lines, write_pairs


def corpus(folder: Path | None, hub_files: str | None = None) -> Corpus:
    files = {"train": "train", "dev": "val", "test": "test"}
    return Corpus("pairs", folder, ("de", "en"), files, "owner/pairs", hub_files)


def test_a_line_that_cannot_be_used_is_skipped_and_counted(pairs_folder: Path) -> None:
    broken = lines(GERMAN[:4]) + b"\n" + b"\xff\xfe kaputt\n" + lines(["  ", "letzter \x85 Satz\u2028hier"])
    write_pairs(pairs_folder, "train", broken, lines([*ENGLISH[:4], "empty", "undecodable", "blank", "last"]))
    found = read_parallel_text(corpus(pairs_folder), "train")
    assert [pair.source for pair in found.pairs] == [*GERMAN[:4], "letzter \x85 Satz\u2028hier"]
    assert found.pairs[-1].target == "last"
    assert found.skipped == {"empty": 2, "undecodable": 1}


def test_misaligned_files_are_refused_with_both_counts(pairs_folder: Path) -> None:
    write_pairs(pairs_folder, "test", lines(GERMAN), lines(ENGLISH[:-1]))
    with pytest.raises(DataError, match=r"(?s)test.de has 20 lines.*test.en has 19"):
        read_parallel_text(corpus(pairs_folder), "test")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / "pairs" / "val.en").unlink(), r"val\.en: cannot be read.*paths\.data="),
        (lambda folder: write_pairs(folder, "train", b"\n", b"\n"), r"no pair of sentences can be used"),
    ],
    ids=["a missing file", "empty lines"],
)
def test_a_set_that_cannot_be_used_says_why(pairs_folder: Path, spoil: Callable[[Path], object], said: str) -> None:
    spoil(pairs_folder)
    with pytest.raises(DataError, match=said):
        [read_parallel_text(corpus(pairs_folder), split) for split in ("train", "dev", "test")]


@pytest.mark.parametrize("nested", [False, True])
def test_the_hub_gives_the_same_pairs(nested: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    pairs = [{"de": german, "en": english} for german, english in zip(GERMAN, ENGLISH, strict=True)]

    def load_dataset(name: str, split: str) -> datasets.Dataset:
        asked.append((name, split))
        return datasets.Dataset.from_list([{"translation": pair} for pair in pairs] if nested else pairs)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    found = read_parallel_text(corpus(None), "dev")
    assert [pair.source for pair in found.pairs] == GERMAN
    assert [pair.target for pair in found.pairs] == ENGLISH
    assert asked == [("owner/pairs", "validation")]


def test_files_of_the_hub_are_read_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load_dataset(builder: str, data_files: dict[str, str], split: str) -> datasets.Dataset:
        asked.append((builder, data_files, split))
        return datasets.Dataset.from_list([{"de": "ja", "en": "yes"}])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert read_parallel_text(corpus(None, "data/{split}-*.parquet"), "dev").pairs == [("ja", "yes")]
    files = {"validation": "hf://datasets/owner/pairs/data/validation-*.parquet"}
    assert asked == [("parquet", files, "validation")]


def test_a_hub_out_of_reach_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise ConnectionError("no network")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(DataError, match=r"(?s)no network.*paths\.data=FOLDER.*pairs/train\.de"):
        read_parallel_text(corpus(None), "train")
