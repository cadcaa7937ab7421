"""Airline Tweets: tokens, vocabulary, split, and one clear error for each kind of bad file."""

import csv
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

from experiments.data.airline import AirlineSettings, load_airline
from experiments.data.text import Vocabulary, tokenize
from experiments.errors import DataError

SETTINGS = AirlineSettings(name="airline", max_length=6, minimum_count=1, test_fraction=0.2, split_seed=21)
HEADER = ["tweet_id", "airline_sentiment", "name", "text"]
SENTIMENTS = ["negative", "neutral", "positive"]
Records = list[list[str]]


def letters(number: int) -> str:
    """A word of its own for each number."""
    return "zq" + "abcdefghij"[number // 10] + "abcdefghij"[number % 10]


def records() -> Records:
    """Sixty tweets: two share an id, three a text, one of these with one of those."""
    made = [[str(100 + i), SENTIMENTS[i % 3], "someone", f"the late flight {letters(i)}"] for i in range(60)]
    made[3][0] = made[0][0]
    made[6][3] = made[9][3] = made[3][3]
    made[30][3] = 'Two "quoted" lines,\nof one tweet &amp; more'
    return made


def write(folder: Path, rows: Records) -> Path:
    path = folder / "airline" / "Tweets.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, [HEADER, *records()])
    return tmp_path


def test_load_gives_token_rows_and_targets_of_both_sides(folder: Path) -> None:
    data = load_airline(SETTINGS, folder)

    assert data.train.inputs.shape == (48, 6)
    assert data.test.inputs.shape == (12, 6)
    assert data.train.inputs.dtype == data.train.targets.dtype == torch.int64
    assert data.test.targets.bincount().tolist() == [4, 4, 4]
    assert data.class_names == tuple(SENTIMENTS)
    # Every number of the vocabulary but "unknown" occurs in training, and in training alone.
    assert data.train.inputs.unique().tolist() == [
        0,
        *range(2, int(data.facts["vocabulary_size"])),
    ]
    assert data.test.inputs.max() < data.facts["vocabulary_size"]


def test_facts_tell_sizes_classes_and_repeats(folder: Path) -> None:
    facts = load_airline(SETTINGS, folder).facts

    unknown_share = facts.pop("test_unknown_share")
    assert isinstance(unknown_share, float)
    assert 0 < unknown_share < 1  # each tweet has a word of its own
    assert facts.pop("vocabulary_size") > 40
    assert facts == {
        "records": 60,
        "records_negative": 20,
        "records_neutral": 20,
        "records_positive": 20,
        "repeated_ids": 1,
        "repeated_texts": 2,
        "train_size": 48,
        "test_size": 12,
    }


@pytest.mark.parametrize("seed", range(8))
def test_repeats_stay_on_one_side(folder: Path, seed: int) -> None:
    # "repeats" is a word of the four joined records alone.
    rows = records()
    for i in (3, 6, 9):
        rows[i][3] = "repeats"
    rows[0][3] = "repeats too"
    write(folder, [HEADER, *rows])
    data = load_airline(replace(SETTINGS, split_seed=seed), folder)

    both = torch.cat([data.train.inputs, data.test.inputs])
    short = (both != 0).sum(dim=1) <= 2
    assert short.sum() == 4
    assert short[: len(data.train.inputs)].sum() in (0, 4)


def test_split_follows_the_split_seed(folder: Path) -> None:
    hashes = [load_airline(replace(SETTINGS, split_seed=s), folder).split_hash for s in (1, 1, 2)]

    assert hashes[0] == hashes[1] != hashes[2]


def test_byte_order_mark_and_windows_line_ends_change_nothing(folder: Path) -> None:
    plain = load_airline(SETTINGS, folder)
    path = folder / "airline" / "Tweets.csv"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))

    assert load_airline(SETTINGS, folder).split_hash == plain.split_hash


def append(content: bytes) -> Callable[[bytes], bytes]:
    return lambda file: file + content


BAD_FILES = {
    "empty": (lambda file: b"", ["line 1: the file is empty"]),
    "header alone": (lambda file: file[: file.index(b"\n") + 1], ["labelled 'negative'"]),
    "missing column": (
        lambda file: file.replace(b"airline_sentiment", b"label", 1),
        ["line 1: no column 'airline_sentiment' among tweet_id, label, name, text"],
    ),
    "missing class": (
        lambda file: file.replace(b",positive,", b",neutral,"),
        ["no record is labelled 'positive'"],
    ),
    # One tweet spans two lines, so the 61st record of the file would start at line 63.
    "unterminated quote": (append(b'7,neutral,x,"begun\n'), ["line 63: ", "never closed"]),
    "quote left open in the middle": (
        lambda file: file.replace(b",the late flight zqfa\n", b',"the late flight zqfa\n'),
        ["line 53: ", "never closed"],
    ),
    "cut between fields": (append(b"7,neutral"), ["line 63: the record has 2 fields, not 4"]),
    "cut within the last field": (lambda file: file[:-3], ["line 62: ", "truncated"]),
    "too many fields": (append(b"7,neutral,x,y,z\n"), ["line 63: the record has 5 fields, not 4"]),
    "not UTF-8": (append(b"7,neutral,x,caf\xe9\n"), ["line 63: byte 0xe9 is not UTF-8"]),
    "unknown label": (
        append(b"7,Neutral,x,y\n"),
        ["line 63: airline_sentiment is 'Neutral'", "allowed are negative, neutral, positive"],
    ),
    "empty id": (append(b",neutral,x,y\n"), ["line 63: tweet_id is empty"]),
    "empty text": (append(b"7,neutral,x, \n"), ["line 63: text is empty"]),
}


@pytest.mark.parametrize(("spoil", "parts"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_bad_file_is_one_error_with_file_line_and_remedy(
    folder: Path, spoil: Callable[[bytes], bytes], parts: list[str]
) -> None:
    path = folder / "airline" / "Tweets.csv"
    path.write_bytes(spoil(path.read_bytes()))

    with pytest.raises(DataError) as caught:
        load_airline(SETTINGS, folder)

    for part in [str(path), "fetch Tweets.csv again", *parts]:
        assert part in str(caught.value)


def test_missing_file_says_what_the_folder_must_hold(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        load_airline(SETTINGS, tmp_path / "absent")

    for part in (f"paths.data={tmp_path / 'absent'}", "airline/Tweets.csv", "null"):
        assert part in str(caught.value)


def test_too_few_tweets_to_split_is_an_error_of_the_file(folder: Path) -> None:
    path = write(folder, [HEADER, *records()[:6]])

    with pytest.raises(DataError, match="no example of class") as caught:
        load_airline(SETTINGS, folder)

    assert str(path) in str(caught.value)


class HubRows(dict[str, list[str | int | None]]):
    """Stands for the hub's table: columns by name."""

    @property
    def column_names(self) -> list[str]:
        return list(self)


def serve(monkeypatch: pytest.MonkeyPatch, load: Callable[..., HubRows]) -> None:
    module = ModuleType("datasets")
    module.load_dataset = load  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)


def hub_rows() -> HubRows:
    rows = HubRows(zip(HEADER, map(list, zip(*records(), strict=True)), strict=True))
    rows["tweet_id"] = [int(str(value)) for value in rows["tweet_id"]]
    return rows


def test_hub_and_folder_give_the_same_data(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    serve(monkeypatch, lambda *args, **kwargs: asked.append((args, kwargs)) or hub_rows())

    hub, file = load_airline(SETTINGS, None), load_airline(SETTINGS, folder)

    assert asked == [(("osanseviero/twitter-airline-sentiment",), {"split": "train"})]
    assert hub.split_hash == file.split_hash
    assert torch.equal(hub.train.inputs, file.train.inputs)
    assert hub.facts == file.facts


def test_unreachable_hub_says_which_folder_to_give(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*args: object, **kwargs: object) -> HubRows:
        raise ConnectionError("no route")

    serve(monkeypatch, unreachable)

    with pytest.raises(DataError) as caught:
        load_airline(SETTINGS, None)

    for part in ("no route", "paths.data=FOLDER", "airline/Tweets.csv"):
        assert part in str(caught.value)


def test_empty_value_on_the_hub_is_an_error_with_its_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = hub_rows()
    rows["text"][4] = None
    serve(monkeypatch, lambda *args, **kwargs: rows)

    with pytest.raises(DataError, match="record 5: text is empty"):
        load_airline(SETTINGS, None)


def test_tokens_are_lower_case_lemmas_with_handles_links_and_negations_whole() -> None:
    tweet = "@United WASN'T my Flights' bags &amp; didn't #LoveIt &lt3 http://t.co/Ab1 delayed"

    (tokens,) = tokenize([tweet])

    assert {"@united", "wasn't", "flight", "bag", "&", "didn't", "#loveit", "<3"} <= set(tokens)
    assert tokens[-2:] == ["http://t.co/ab1", "delay"]


def test_vocabulary_is_ordered_by_frequency_then_alphabet() -> None:
    vocabulary = Vocabulary([["b", "c"], ["a", "c"]], minimum_count=1)

    assert len(vocabulary) == 5
    assert vocabulary.encode([["c", "a", "b"], ["z"], []], max_length=3).tolist() == [
        [2, 3, 4],
        [1, 0, 0],
        [0, 0, 0],
    ]


def test_vocabulary_leaves_out_rare_tokens_and_cuts_long_tweets() -> None:
    vocabulary = Vocabulary([["a", "b", "b"]], minimum_count=2)

    assert vocabulary.encode([["b", "a", "b"]], max_length=2).tolist() == [[2, 1]]
