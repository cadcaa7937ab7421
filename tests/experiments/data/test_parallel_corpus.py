"""A parallel corpus: pairs from files and from the hub, subwords learned from the training split, token numbers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch

from experiments.data.parallel_corpus import ParallelCorpusDataModule
from experiments.data.special_tokens import BEGIN, END, PADDING, UNKNOWN
from experiments.data.translation import TranslationData
from experiments.errors import ConfigurationError, DataError
from tests.experiments.data.generated import ENGLISH, GERMAN, lines, write_pairs
from tests.experiments.data.support import BATCHES, words

SETTINGS: dict[str, Any] = {
    "name": "pairs",
    "source": "de",
    "target": "en",
    "train": "train",
    "dev": "val",
    "test": "test",
    "hub": "owner/pairs",
    "vocabulary_size": 60,
    "max_length": 30,
}


def unread(folder: Path | None, **changes: Any) -> ParallelCorpusDataModule:
    return ParallelCorpusDataModule(folder=folder, **SETTINGS | BATCHES | changes)


def module(folder: Path | None, **changes: Any) -> ParallelCorpusDataModule:
    data = unread(folder, **changes)
    data.setup()
    return data


def load(folder: Path | None, **changes: Any) -> TranslationData:
    return module(folder, **changes).data


def test_sentences_are_numbered_and_come_back(pairs_folder: Path) -> None:
    data = load(pairs_folder)
    sources, targets, unreadable = data.train.read(torch.tensor([1, 0]), torch.zeros(2))
    assert unreadable == []
    assert data.text(words(sources[0])) == GERMAN[1]
    assert data.text(words(targets[1])) == ENGLISH[0]
    assert (targets[:, 0] == BEGIN).all()
    for tokens in (*sources, *targets):
        real = tokens[tokens != PADDING]
        assert real[-1] == END
        assert (real[:-1] != END).all()
        assert (tokens[len(real) :] == PADDING).all()
    assert data.dev.references == ENGLISH
    assert data.vocabulary_size == 60
    in_use = data.types_in_use()
    assert in_use[END]
    assert not in_use[[PADDING, BEGIN]].any()
    assert in_use.sum() == data.facts["target_types"] < 60


def test_over_long_pairs_leave_training_alone_and_are_counted(pairs_folder: Path) -> None:
    write_pairs(pairs_folder, "train", lines([*GERMAN, "ein " * 60]), lines([*ENGLISH, "a"]))
    write_pairs(pairs_folder, "val", lines([*GERMAN, "ein " * 60]), lines([*ENGLISH, "a"]))
    data = load(pairs_folder)
    assert data.facts["train_skipped_over_long"] == 1
    assert data.facts["train_size"] == len(data.train.references) == len(GERMAN)
    assert len(data.dev.references) == len(GERMAN) + 1
    assert data.train.targets.lengths.max() <= SETTINGS["max_length"] + 2


def test_a_vocabulary_that_the_text_cannot_fill_is_refused(pairs_folder: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"data\.vocabulary_size=5000 is not allowed"):
        load(pairs_folder, vocabulary_size=5000)


def test_training_pairs_may_not_all_be_over_long(pairs_folder: Path) -> None:
    with pytest.raises(DataError, match=r"data\.max_length=1"):
        load(pairs_folder, max_length=1)


def test_subwords_are_learned_once_and_depend_on_the_training_split_alone(pairs_folder: Path) -> None:
    first = load(pairs_folder)
    (model,) = (pairs_folder / "subwords").iterdir()
    stamp = model.stat().st_mtime_ns
    write_pairs(pairs_folder, "test", lines(["日本"]), lines(["something else"]))
    again = load(pairs_folder)
    assert model.stat().st_mtime_ns == stamp
    assert again.facts["subwords_hash"] == first.facts["subwords_hash"]
    assert again.content_hash != first.content_hash
    assert UNKNOWN in again.test.sources.tokens  # letters that training never showed
    write_pairs(pairs_folder, "train", lines([*GERMAN, "noch ein Satz"]), lines([*ENGLISH, "one more"]))
    assert load(pairs_folder).facts["subwords_hash"] != first.facts["subwords_hash"]


def test_a_network_and_a_module_are_given_the_vocabulary(pairs_folder: Path) -> None:
    data = module(pairs_folder)
    assert data.network_arguments() == {"vocabulary_size": 60}
    assert data.module_arguments() == {"data": data.data}


def test_lines_of_a_users_file_become_source_tokens(pairs_folder: Path, tmp_path: Path) -> None:
    data = module(pairs_folder)
    file = tmp_path / "mine.txt"
    file.write_text("\n".join([GERMAN[1], "", GERMAN[0], "  ", "Hund"]))

    inputs, names = data.encode(file)

    assert names == [GERMAN[1], GERMAN[0], "Hund"]
    expected, _, _ = data.data.train.read(torch.tensor([1, 0]), torch.zeros(2))
    assert torch.equal(inputs[:2], expected)
    assert data.data.text(words(inputs[2])) == "Hund"
    assert inputs[2][inputs[2] != PADDING][-1] == END


def test_a_line_that_cannot_be_used_is_skipped_and_counted(pairs_folder: Path) -> None:
    broken = lines(GERMAN[:4]) + b"\n" + b"\xff\xfe kaputt\n" + lines(["  ", "letzter \x85 Satz\u2028hier"])
    write_pairs(pairs_folder, "train", broken, lines([*ENGLISH[:4], "empty", "undecodable", "blank", "last"]))
    pairs, skipped = unread(pairs_folder).read("train")
    assert [source for source, _ in pairs] == [*GERMAN[:4], "letzter \x85 Satz\u2028hier"]
    assert pairs[-1][1] == "last"
    assert skipped == {"empty": 2, "undecodable": 1}


def test_misaligned_files_are_refused_with_both_counts(pairs_folder: Path) -> None:
    write_pairs(pairs_folder, "test", lines(GERMAN), lines(ENGLISH[:-1]))
    with pytest.raises(DataError, match=r"(?s)test.de has 20 lines.*test.en has 19"):
        unread(pairs_folder).read("test")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / "pairs" / "val.en").unlink(), r"val\.en: cannot be read.*paths\.data="),
        (lambda folder: write_pairs(folder, "train", b"\n", b"\n"), r"0 of \d+ pairs of sentences can be used"),
    ],
    ids=["a missing file", "empty lines"],
)
def test_a_set_that_cannot_be_used_says_why(pairs_folder: Path, spoil: Callable[[Path], object], said: str) -> None:
    spoil(pairs_folder)
    with pytest.raises(DataError, match=said):
        [unread(pairs_folder).read(split) for split in ("train", "dev", "test")]


@pytest.mark.parametrize("nested", [False, True])
def test_the_hub_gives_the_same_pairs(nested: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    pairs = [{"de": german, "en": english} for german, english in zip(GERMAN, ENGLISH, strict=True)]

    def load_dataset(name: str, split: str) -> datasets.Dataset:
        asked.append((name, split))
        return datasets.Dataset.from_list([{"translation": pair} for pair in pairs] if nested else pairs)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    found, skipped = unread(None).read("dev")
    assert found == list(zip(GERMAN, ENGLISH, strict=True))
    assert skipped == {"empty": 0, "undecodable": 0}
    assert asked == [("owner/pairs", "validation")]


def test_files_of_the_hub_are_read_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load_dataset(builder: str, data_files: dict[str, str], split: str) -> datasets.Dataset:
        asked.append((builder, data_files, split))
        return datasets.Dataset.from_list([{"de": "ja", "en": "yes"}])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert unread(None, hub_files="data/{split}-*.parquet").read("dev")[0] == [("ja", "yes")]
    files = {"validation": "hf://datasets/owner/pairs/data/validation-*.parquet"}
    assert asked == [("parquet", files, "validation")]


def test_a_hub_out_of_reach_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise ConnectionError("no network")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(DataError, match=r"(?s)no network.*paths\.data=FOLDER.*pairs/train\.de"):
        unread(None).read("train")
