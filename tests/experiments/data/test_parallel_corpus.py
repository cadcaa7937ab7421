"""A parallel corpus: subwords learned from the training split, sentences as token numbers."""

from pathlib import Path
from typing import Any

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


def module(folder: Path | None, **changes: Any) -> ParallelCorpusDataModule:
    data = ParallelCorpusDataModule(folder=folder, **SETTINGS | BATCHES | changes)
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
    assert again.split_hash != first.split_hash
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
