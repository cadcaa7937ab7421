"""The Airline Tweets data set: three sentiments, from the Hugging Face hub or from a folder."""

import csv
import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from experiments.data.base import ClassificationDataModule
from experiments.data.examples import ClassificationData, InMemory
from experiments.data.splits import groups_of_repeats, split_hash, stratified_group_split
from experiments.data.text import Vocabulary, lines_of, tokenize
from experiments.errors import DataError
from experiments.settings import AtLeastOne, OpenShare, Seed, validated

CLASS_NAMES = ("negative", "neutral", "positive")
HUB_NAME = "osanseviero/twitter-airline-sentiment"
FILE_NAME = "airline/Tweets.csv"
FETCH_AGAIN = f"fetch Tweets.csv again, from {HUB_NAME} on the Hugging Face hub"


class Tweet(NamedTuple):
    """One record of the data set."""

    id: str
    text: str
    sentiment: str


COLUMNS = Tweet(id="tweet_id", text="text", sentiment="airline_sentiment")


class AirlineDataModule(ClassificationDataModule):
    """Airline Tweets: tokenised, lemmatised, numbered, split with repeats on one side.

    Inputs are token numbers, int64 [n, max_length], 0 for padding and 1 for unknown tokens. The vocabulary is that of
    the training tweets.

    Args:
        folder: folder that holds airline/Tweets.csv; None loads the set from the hub.
        max_length: tokens kept of each tweet.
        minimum_count: training occurrences that make a token known.
        test_fraction: share of the tweets held out for testing.
        split_seed: seed of the split.
        **batches: as for `ClassificationDataModule`.

    Source: CrowdFlower, Twitter US Airline Sentiment, 14,640 tweets of February 2015.
    """

    @validated
    def __init__(
        self,
        *,
        folder: Path | None = None,
        max_length: AtLeastOne,
        minimum_count: AtLeastOne,
        test_fraction: OpenShare,
        split_seed: Seed,
        **batches: Any,
    ) -> None:
        super().__init__(**batches)
        self._arguments = folder, max_length, minimum_count, test_fraction, split_seed

    def load(self) -> ClassificationData:
        return _load(*self._arguments)


def _load(
    folder: Path | None, max_length: int, minimum_count: int, test_fraction: float, split_seed: int
) -> ClassificationData:
    if folder is None:
        source, tweets = f"{HUB_NAME} on the Hugging Face hub", list(_tweets_on_hub())
    else:
        source, tweets = str(folder / FILE_NAME), list(_tweets_in_file(folder))
    ids = [tweet.id for tweet in tweets]
    texts = [tweet.text for tweet in tweets]
    sentiments = [tweet.sentiment for tweet in tweets]

    classes = Counter(sentiments)
    for name in CLASS_NAMES:
        if name not in classes:
            raise DataError(f"{source}: no record is labelled {name!r}; {FETCH_AGAIN}")

    groups = groups_of_repeats(ids, texts)
    try:
        train, test = stratified_group_split(sentiments, groups, test_fraction, split_seed)
    except ValueError as error:
        raise DataError(f"{source}, data.test_fraction={test_fraction}: {error}") from error

    tokens = [tweet[:max_length] for tweet in tokenize(texts)]
    vocabulary = Vocabulary((tokens[i] for i in train), minimum_count)
    inputs = vocabulary.encode(tokens, max_length)
    targets = torch.tensor([CLASS_NAMES.index(sentiment) for sentiment in sentiments])
    test_tokens = inputs[test][inputs[test] != Vocabulary.padding]

    def encode(content: bytes) -> tuple[Tensor, list[str]]:
        lines = lines_of(content)
        return vocabulary.encode(tokenize(lines), max_length), lines

    return ClassificationData(
        train=InMemory(inputs[train], targets[train]),
        test=InMemory(inputs[test], targets[test]),
        class_names=CLASS_NAMES,
        split_hash=split_hash(ids, test),
        facts={
            "records": len(tweets),
            **{f"records_{name}": classes[name] for name in CLASS_NAMES},
            "repeated_ids": len(ids) - len(set(ids)),
            "repeated_texts": len(texts) - len(set(texts)),
            "train_size": len(train),
            "test_size": len(test),
            "vocabulary_size": len(vocabulary),
            "test_unknown_share": (test_tokens == Vocabulary.unknown).double().mean().item(),
        },
        sizes={"vocabulary_size": len(vocabulary)},
        groups=torch.from_numpy(groups[train]),
        encode=encode,
    )


def _tweets_in_file(folder: Path) -> Iterator[Tweet]:
    path = folder / FILE_NAME
    content = _read(folder)
    text = _decode(content, path).removeprefix("\ufeff")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    header: list[str] = []
    line = 1
    try:
        for fields in reader:
            place = f"{path}, line {line}"
            if not header:
                header = fields
                _check_columns(header, place)
            elif len(fields) != len(header):
                raise DataError(
                    f"{place}: the record has {len(fields)} fields, not {len(header)} as the header; {FETCH_AGAIN}"
                )
            else:
                record = dict(zip(header, fields, strict=True))
                yield _checked(Tweet(*(record[column] for column in COLUMNS)), place)
            line_of_last, line = line, reader.line_num + 1
    except csv.Error as error:
        raise DataError(
            f"{path}, line {line}: the record that starts here is truncated or has a quote that "
            f"is never closed ({error}); {FETCH_AGAIN}"
        ) from error
    if not text.endswith(("\n", "\r")):
        raise DataError(
            f"{path}, line {line_of_last}: the last record does not end in a newline, so the file "
            f"may be truncated; {FETCH_AGAIN}, or end the line if the record is complete"
        )


def _read(folder: Path) -> bytes:
    path = folder / FILE_NAME
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror}); paths.data={folder} must be a folder "
            f"that holds {FILE_NAME}, or null to load {HUB_NAME} from the Hugging Face hub"
        ) from error
    if not content.strip():
        raise DataError(f"{path}, line 1: the file is empty; {FETCH_AGAIN}")
    return content


def _decode(content: bytes, path: Path) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}, line {line}: byte 0x{content[error.start]:02x} is not UTF-8; {FETCH_AGAIN}, "
            "or convert the file to UTF-8"
        ) from error


def _tweets_on_hub() -> Iterator[Tweet]:
    # The hub's client fails with the errors of several libraries that share no base class.
    try:
        from datasets import load_dataset

        rows = load_dataset(HUB_NAME, split="train")
    except Exception as error:
        raise DataError(
            f"{HUB_NAME} cannot be loaded from the Hugging Face hub ({error}); give "
            f"paths.data=FOLDER, a folder that holds {FILE_NAME}"
        ) from error
    _check_columns(rows.column_names, HUB_NAME)
    columns = ([*rows[column]] for column in COLUMNS)
    for number, values in enumerate(zip(*columns, strict=True), 1):
        tweet = Tweet(*("" if value is None else str(value) for value in values))
        yield _checked(tweet, f"{HUB_NAME}, record {number}")


def _check_columns(header: list[str], place: str) -> None:
    for column in COLUMNS:
        if column not in header:
            raise DataError(f"{place}: no column {column!r} among {', '.join(header)}; {FETCH_AGAIN}")


def _checked(tweet: Tweet, place: str) -> Tweet:
    for column, value in zip(COLUMNS, tweet, strict=True):
        if not value.strip():
            raise DataError(f"{place}: {column} is empty; {FETCH_AGAIN}, or remove the record")
    if tweet.sentiment not in CLASS_NAMES:
        raise DataError(
            f"{place}: {COLUMNS.sentiment} is {tweet.sentiment!r}, allowed are "
            f"{', '.join(CLASS_NAMES)}; {FETCH_AGAIN}, or correct the label"
        )
    return tweet
