"""Parallel text from files and from the hub, subwords, and batches of like length."""

import dataclasses
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from torch import Tensor

from experiments import corpora
from experiments.data.copying import load_copy
from experiments.data.parallel_corpus import load_corpus
from experiments.data.parallel_text import read_parallel_text
from experiments.data.samplers import Division
from experiments.data.sentence_pairs import SentencePairs, TranslationData
from experiments.data.special_tokens import BEGIN, END, FIRST, PADDING, UNKNOWN
from experiments.data.token_batches import TokenDraws, measuring_draws
from experiments.errors import ConfigurationError, DataError
from experiments.settings import CopySettings, ParallelTextSettings

SETTINGS = ParallelTextSettings(
    *("pairs", "de", "en", "train", "val", "test", "owner/pairs", None), vocabulary_size=60, max_length=30
)
GERMAN = ["ein Hund läuft", "zwei Hunde laufen schnell", "eine Frau liest ein Buch", "ein Mann schläft"] * 5
ENGLISH = ["a dog runs", "two dogs run fast", "a woman reads a book", "a man sleeps"] * 5


def write(folder: Path, split: str, german: bytes, english: bytes) -> None:
    (folder / "pairs").mkdir(exist_ok=True)
    (folder / "pairs" / f"{split}.de").write_bytes(german)
    (folder / "pairs" / f"{split}.en").write_bytes(english)


def lines(sentences: list[str]) -> bytes:
    return "".join(f"{sentence}\n" for sentence in sentences).encode()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(corpora, "CACHE", tmp_path / "subwords")
    for split in ("train", "val", "test"):
        write(tmp_path, split, lines(GERMAN), lines(ENGLISH))
    return tmp_path


def words(tokens: Tensor) -> list[int]:
    return [token for token in tokens.tolist() if token not in (PADDING, BEGIN, END)]


def test_sentences_are_numbered_and_come_back(folder: Path) -> None:
    data = load_corpus(SETTINGS, folder)
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


def test_a_line_that_cannot_be_used_is_skipped_and_counted(folder: Path) -> None:
    broken = lines(GERMAN[:4]) + b"\n" + b"\xff\xfe kaputt\n" + lines(["  ", "letzter \x85 Satz\u2028hier"])
    write(folder, "train", broken, lines([*ENGLISH[:4], "empty", "undecodable", "blank", "last"]))
    found = read_parallel_text(SETTINGS, "train", folder)
    assert [pair.source for pair in found.pairs] == [*GERMAN[:4], "letzter \x85 Satz\u2028hier"]
    assert found.pairs[-1].target == "last"
    assert found.skipped == {"empty": 2, "undecodable": 1}


def test_over_long_pairs_leave_training_alone_and_are_counted(folder: Path) -> None:
    write(folder, "train", lines([*GERMAN, "ein " * 60]), lines([*ENGLISH, "a"]))
    write(folder, "val", lines([*GERMAN, "ein " * 60]), lines([*ENGLISH, "a"]))
    data = load_corpus(SETTINGS, folder)
    assert data.facts["train_skipped_over_long"] == 1
    assert data.facts["train_size"] == len(data.train.references) == len(GERMAN)
    assert len(data.dev.references) == len(GERMAN) + 1
    assert data.train.targets.lengths.max() <= SETTINGS.max_length + 2


def test_misaligned_files_are_refused_with_both_counts(folder: Path) -> None:
    write(folder, "test", lines(GERMAN), lines(ENGLISH[:-1]))
    with pytest.raises(DataError, match=r"(?s)test.de has 20 lines.*test.en has 19"):
        load_corpus(SETTINGS, folder)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / "pairs" / "val.en").unlink(), r"val\.en: cannot be read.*paths\.data="),
        (lambda folder: write(folder, "train", b"\n", b"\n"), r"no pair of sentences can be used"),
    ],
)
def test_a_set_that_cannot_be_used_says_why(folder: Path, spoil, said: str) -> None:
    spoil(folder)
    with pytest.raises(DataError, match=said):
        load_corpus(SETTINGS, folder)


def test_a_vocabulary_that_the_text_cannot_fill_is_refused(folder: Path) -> None:
    settings = ParallelTextSettings(**{**vars(SETTINGS), "vocabulary_size": 5000})
    with pytest.raises(ConfigurationError, match=r"data\.vocabulary_size=5000 is not allowed"):
        load_corpus(settings, folder)


def test_training_pairs_may_not_all_be_over_long(folder: Path) -> None:
    settings = ParallelTextSettings(**{**vars(SETTINGS), "max_length": 1})
    with pytest.raises(DataError, match=r"data\.max_length=1"):
        load_corpus(settings, folder)


def test_subwords_are_learned_once_and_depend_on_the_training_split_alone(folder: Path) -> None:
    first = load_corpus(SETTINGS, folder)
    (model,) = (folder / "subwords").iterdir()
    stamp = model.stat().st_mtime_ns
    write(folder, "test", lines(["日本"]), lines(["something else"]))
    again = load_corpus(SETTINGS, folder)
    assert model.stat().st_mtime_ns == stamp
    assert again.facts["subwords_hash"] == first.facts["subwords_hash"]
    assert again.split_hash != first.split_hash
    assert UNKNOWN in again.test.sources.tokens  # letters that training never showed
    write(folder, "train", lines([*GERMAN, "noch ein Satz"]), lines([*ENGLISH, "one more"]))
    assert load_corpus(SETTINGS, folder).facts["subwords_hash"] != first.facts["subwords_hash"]


@pytest.mark.parametrize("nested", [False, True])
def test_the_hub_gives_the_same_pairs(nested: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    pairs = [{"de": german, "en": english} for german, english in zip(GERMAN, ENGLISH, strict=True)]

    def load_dataset(name: str, split: str) -> datasets.Dataset:
        asked.append((name, split))
        return datasets.Dataset.from_list([{"translation": pair} for pair in pairs] if nested else pairs)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    found = read_parallel_text(SETTINGS, "dev", None)
    assert [pair.source for pair in found.pairs] == GERMAN
    assert [pair.target for pair in found.pairs] == ENGLISH
    assert asked == [("owner/pairs", "validation")]


def test_files_of_the_hub_are_read_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load_dataset(builder: str, data_files: dict[str, str], split: str) -> datasets.Dataset:
        asked.append((builder, data_files, split))
        return datasets.Dataset.from_list([{"de": "ja", "en": "yes"}])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    settings = dataclasses.replace(SETTINGS, hub_files="data/{split}-*.parquet")
    assert read_parallel_text(settings, "dev", None).pairs == [("ja", "yes")]
    files = {"validation": "hf://datasets/owner/pairs/data/validation-*.parquet"}
    assert asked == [("parquet", files, "validation")]


def test_a_hub_out_of_reach_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise ConnectionError("no network")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(DataError, match=r"(?s)no network.*paths\.data=FOLDER.*pairs/train\.de"):
        read_parallel_text(SETTINGS, "train", None)


COPY = CopySettings("copy", words=6, shortest=2, longest=9, train_size=300, evaluation_size=20, data_seed=3)


@pytest.fixture(scope="module")
def copies() -> TranslationData:
    return load_copy(COPY)


def test_copies_are_the_sentences_and_no_split_shares_one(copies: TranslationData) -> None:
    seen: set[str] = set()
    for pairs, size in ((copies.train, 300), (copies.dev, 20), (copies.test, 20)):
        sources, targets, _ = pairs.read(torch.arange(size), torch.zeros(size))
        for source, target, reference in zip(sources, targets, pairs.references, strict=True):
            assert words(source) == words(target)
            assert copies.text(words(target)) == reference
            assert 2 <= len(words(source)) <= 9
        assert not seen & set(pairs.references)
        assert len(set(pairs.references)) == size
        seen |= set(pairs.references)
    assert copies.vocabulary_size == FIRST + 6


def padded_tokens(pairs: SentencePairs, indices: Tensor) -> int:
    lengths = pairs.predicted_tokens()[indices]
    return int(lengths.max()) * len(lengths)


def test_an_epoch_takes_each_pair_once_in_batches_of_like_length(copies: TranslationData) -> None:
    pairs = copies.train
    draws = TokenDraws(pairs, 60, seed=5, steps=None, division=Division())
    epoch = list(draws)
    assert len(epoch) == len(draws)
    assert sorted(torch.cat([draw.indices for draw in epoch]).tolist()) == list(range(300))
    assert all(padded_tokens(pairs, draw.indices) <= 60 for draw in epoch)
    spreads = [np.ptp(pairs.predicted_tokens()[draw.indices].numpy()) for draw in epoch]
    assert np.mean(spreads) < 1
    assert all(draw.weight == 1 for draw in epoch)
    lengths = [int(pairs.predicted_tokens()[draw.indices].max()) for draw in epoch]
    assert lengths != sorted(lengths)  # the order of the batches is random


def test_an_epoch_is_a_function_of_seed_and_number(copies: TranslationData) -> None:
    def order(seed: int, epoch: int) -> list[list[int]]:
        draws = TokenDraws(copies.train, 60, seed, None, Division())
        draws.epoch = epoch
        return [draw.indices.tolist() for draw in draws]

    assert order(5, 1) == order(5, 1)
    assert order(5, 1) != order(5, 2)
    assert order(5, 1) != order(6, 1)
    assert len(list(TokenDraws(copies.train, 60, 5, 4, Division()))) == 4


def test_processes_and_passes_divide_each_batch_by_its_tokens(copies: TranslationData) -> None:
    whole = list(TokenDraws(copies.train, 60, 5, None, Division()))
    parts = [list(TokenDraws(copies.train, 60, 5, None, Division(2, process, 2))) for process in range(2)]
    tokens = copies.train.predicted_tokens()
    for number, draw in enumerate(draw for draw in whole if len(draw.indices) >= 4):
        own = [part[2 * number + turn] for turn in range(2) for part in parts]
        assert sorted(torch.cat([part.indices for part in own]).tolist()) == sorted(draw.indices.tolist())
        for part in own:
            assert part.weight == pytest.approx(2 * (tokens[part.indices].sum() / tokens[draw.indices].sum()).item())


def test_measuring_takes_each_pair_once_the_shortest_first(copies: TranslationData) -> None:
    draws = [draw for process in range(2) for draw in measuring_draws(copies.dev, 6, Division(2, process))]
    assert sorted(torch.cat([draw.indices for draw in draws]).tolist()) == list(range(20))
    lengths = copies.dev.sources.lengths[torch.cat([d.indices for d in measuring_draws(copies.dev, 6, Division())])]
    assert (lengths.diff() >= 0).all()
