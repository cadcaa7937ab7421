"""Airline Tweets: tokens, split, and one clear error for each kind of bad file."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from experiments.data.airline import AirlineDataModule
from experiments.data.examples import ClassificationData
from experiments.errors import DataError
from tests.experiments.data.generated import HEADER, SENTIMENTS, repeating_tweets, tweets, write_tweets
from tests.experiments.data.support import BATCHES


def module(folder: Path | None, **changes: Any) -> AirlineDataModule:
    settings = {"max_length": 6, "minimum_count": 1, "test_fraction": 0.2, "split_seed": 21} | changes
    data = AirlineDataModule(folder=folder, **settings, **BATCHES)
    data.setup()
    return data


def load(folder: Path | None, **changes: Any) -> ClassificationData:
    return module(folder, **changes).data


def test_load_gives_token_rows_and_targets_of_both_sides(tweets_folder: Path) -> None:
    data = load(tweets_folder)

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


def test_a_network_is_given_the_sizes(tweets_folder: Path) -> None:
    data = module(tweets_folder)

    assert data.network_arguments() == {"num_classes": 3, "vocabulary_size": data.data.facts["vocabulary_size"]}
    assert data.module_arguments() == {"num_classes": 3, "shots": None}


def test_facts_tell_sizes_classes_and_repeats(tweets_folder: Path) -> None:
    facts = load(tweets_folder).facts

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


def test_repeats_stay_on_one_side(tweets_folder: Path) -> None:
    write_tweets(tweets_folder, repeating_tweets())
    for seed in range(8):
        data = load(tweets_folder, split_seed=seed)
        both = torch.cat([data.train.inputs, data.test.inputs])
        short = (both != 0).sum(dim=1) <= 2  # the four joined records alone
        assert short.sum() == 4, f"split_seed={seed}"
        assert short[: len(data.train.inputs)].sum() in (0, 4), f"split_seed={seed}"


def test_split_follows_the_split_seed(tweets_folder: Path) -> None:
    hashes = [load(tweets_folder, split_seed=seed).content_hash for seed in (1, 1, 2)]

    assert hashes[0] == hashes[1] != hashes[2]


def test_byte_order_mark_and_windows_line_ends_change_nothing(tweets_folder: Path) -> None:
    plain = load(tweets_folder)
    path = tweets_folder / "airline" / "Tweets.csv"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))

    assert load(tweets_folder).content_hash == plain.content_hash


def append(content: bytes) -> Callable[[bytes], bytes]:
    return lambda file: file + content


BAD_FILES = {
    "empty": (lambda file: b"", ["line 1: the file is empty"]),
    "byte order mark alone": (lambda file: b"\xef\xbb\xbf", ["line 1: the file is empty"]),
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
    tweets_folder: Path, spoil: Callable[[bytes], bytes], parts: list[str]
) -> None:
    path = tweets_folder / "airline" / "Tweets.csv"
    path.write_bytes(spoil(path.read_bytes()))

    with pytest.raises(DataError) as caught:
        load(tweets_folder)

    for part in [str(path), "fetch Tweets.csv again", *parts]:
        assert part in str(caught.value)


def test_missing_file_says_what_the_folder_must_hold(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        load(tmp_path / "absent")

    for part in (f"paths.data={tmp_path / 'absent'}", "airline/Tweets.csv", "null"):
        assert part in str(caught.value)


def test_too_few_tweets_to_split_is_an_error_of_the_file(tweets_folder: Path) -> None:
    path = write_tweets(tweets_folder, tweets()[:6])

    with pytest.raises(DataError, match="no example of class") as caught:
        load(tweets_folder)

    assert str(path) in str(caught.value)


class HubRows(dict[str, list[str | int | None]]):
    """Stands for the hub's table: columns by name."""

    @property
    def column_names(self) -> list[str]:
        return list(self)


def serve(monkeypatch: pytest.MonkeyPatch, load_dataset: Callable[..., HubRows]) -> None:
    client = ModuleType("datasets")
    client.load_dataset = load_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", client)


def hub_rows() -> HubRows:
    rows = HubRows(zip(HEADER, map(list, zip(*tweets(), strict=True)), strict=True))
    rows["tweet_id"] = [int(str(value)) for value in rows["tweet_id"]]
    return rows


def test_hub_and_folder_give_the_same_data(tweets_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    serve(monkeypatch, lambda *args, **kwargs: asked.append((args, kwargs)) or hub_rows())

    hub, file = load(None), load(tweets_folder)

    assert asked == [(("osanseviero/twitter-airline-sentiment",), {"split": "train"})]
    assert hub.content_hash == file.content_hash
    assert torch.equal(hub.train.inputs, file.train.inputs)
    assert hub.facts == file.facts


def test_unreachable_hub_says_which_folder_to_give(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*args: object, **kwargs: object) -> HubRows:
        raise ConnectionError("no route")

    serve(monkeypatch, unreachable)

    with pytest.raises(DataError) as caught:
        load(None)

    for part in ("no route", "paths.data=FOLDER", "airline/Tweets.csv"):
        assert part in str(caught.value)


def test_empty_value_on_the_hub_is_an_error_with_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = hub_rows()
    rows["text"][4] = None
    serve(monkeypatch, lambda *args, **kwargs: rows)

    with pytest.raises(DataError, match="record 5: text is empty"):
        load(None)


def test_lines_of_a_users_file_are_encoded_as_tweets_are(tweets_folder: Path, tmp_path: Path) -> None:
    data = module(tweets_folder)
    of_flights = [text for _, _, _, text in tweets() if text.startswith("the late flight")]
    file = tmp_path / "mine.txt"
    file.write_text("\n".join(of_flights) + "\n\n  \nSomething nobody wrote\n")

    inputs, names = data.encode(file)

    assert names == [*of_flights, "Something nobody wrote"]
    rows = {tuple(row) for row in torch.cat([data.data.train.inputs, data.data.test.inputs]).tolist()}
    assert {tuple(row) for row in inputs[:-1].tolist()} <= rows
    assert inputs[-1].tolist() == [1, 1, 1, 0, 0, 0]
