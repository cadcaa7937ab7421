"""The Airline Tweets data set: three sentiments, from the Hugging Face hub or from a folder."""

import csv
import io
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from experiments.data.base import ClassificationDataModule
from experiments.data.examples import ClassificationData, InMemory
from experiments.data.hub import load_from_hub
from experiments.data.local_files import read_file
from experiments.data.splits import groups_of_repeats, stratified_group_split
from experiments.data.text import Vocabulary, lines_of, tokenize
from experiments.errors import DataError
from experiments.settings import AtLeastOne, OpenShare, Seed, validated_class

CLASS_NAMES = ("negative", "neutral", "positive")
COLUMNS = ("tweet_id", "text", "airline_sentiment")
HUB_NAME = "osanseviero/twitter-airline-sentiment"
FILE_NAME = "airline/Tweets.csv"
FETCH_AGAIN = f"fetch Tweets.csv again, from {HUB_NAME} on the Hugging Face hub"

Row = tuple[str, list[str]]  # the record's place, for messages, and its values


@validated_class
class AirlineDataModule(ClassificationDataModule):
    """Airline Tweets: token numbers, int64 [n, max_length], 0 for padding and 1 for unknown tokens.

    Copies of a tweet are on one side of the split; the vocabulary comes from the training tweets.

    Arguments: `conf/data/airline.yaml`.
    Source: CrowdFlower, Twitter US Airline Sentiment, 14,640 tweets of February 2015.
    """

    folder: Path | None = None
    max_length: AtLeastOne
    minimum_count: AtLeastOne
    test_fraction: OpenShare
    split_seed: Seed

    def load(self) -> ClassificationData:
        source = str(self.folder / FILE_NAME) if self.folder else f"{HUB_NAME} on the Hugging Face hub"
        records = [*_checked(_rows_of_file(self.folder) if self.folder else _rows_of_hub())]
        self.check_count("all", len(records), source, FETCH_AGAIN)
        ids, texts, sentiments = ([record[column] for record in records] for column in COLUMNS)
        classes = Counter(sentiments)
        for name in CLASS_NAMES:
            if name not in classes:
                raise DataError(f"{source}: no record is labelled {name!r}; {FETCH_AGAIN}")

        groups = groups_of_repeats(ids, texts)
        try:
            train, test = stratified_group_split(sentiments, groups, self.test_fraction, self.split_seed)
        except ValueError as error:
            raise DataError(f"{source}, data.test_fraction={self.test_fraction}: {error}") from error

        tokens = [tweet[: self.max_length] for tweet in tokenize(texts)]
        targets = torch.tensor([CLASS_NAMES.index(sentiment) for sentiment in sentiments])
        remaining, _ = self.split_for_validation(targets[train], groups[train])
        vocabulary = Vocabulary((tokens[i] for i in train[remaining]), self.minimum_count)
        inputs = vocabulary.encode(tokens, self.max_length)
        test_tokens = inputs[test][inputs[test] != Vocabulary.padding]

        return ClassificationData(
            train=InMemory(inputs[train], targets[train]),
            test=InMemory(inputs[test], targets[test]),
            class_names=CLASS_NAMES,
            facts={
                "records": len(records),
                **{f"records_{name}": classes[name] for name in CLASS_NAMES},
                "repeated_ids": len(ids) - len(set(ids)),
                "repeated_texts": len(texts) - len(set(texts)),
                "vocabulary_size": len(vocabulary),
                "test_unknown_share": (test_tokens == Vocabulary.unknown).double().mean().item(),
            },
            sizes={"vocabulary_size": len(vocabulary)},
            groups=torch.from_numpy(groups[train]),
            encode=partial(_encode, vocabulary, self.max_length),
        )


def _encode(vocabulary: Vocabulary, max_length: int, content: bytes) -> tuple[Tensor, list[str]]:
    lines = lines_of(content)
    return vocabulary.encode(tokenize(lines), max_length), lines


def _rows_of_file(folder: Path) -> Iterator[Row]:
    """The header and the records of the file, each with the number of its first line."""
    path = folder / FILE_NAME
    try:
        content = read_file(path)
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror}); paths.data={folder} must be a folder "
            f"that holds {FILE_NAME}, or null to load {HUB_NAME} from the Hugging Face hub"
        ) from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}, line {line}: byte 0x{error.object[error.start]:02x} is not UTF-8; {FETCH_AGAIN}, "
            "or convert the file to UTF-8"
        ) from error
    if not text.strip():
        raise DataError(f"{path}, line 1: the file is empty; {FETCH_AGAIN}")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    line = 1
    try:
        for fields in reader:
            place = f"{path}, line {line}"
            yield place, fields
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(
            f"{path}, line {line}: the record that starts here is truncated or has a quote that "
            f"is never closed ({error}); {FETCH_AGAIN}"
        ) from error
    if not text.endswith(("\n", "\r")):
        raise DataError(
            f"{place}: the last record does not end in a newline, so the file may be truncated; {FETCH_AGAIN}, or end "
            "the line if the record is complete"
        )


def _rows_of_hub() -> Iterator[Row]:
    """The names of the columns and the records, each with its number."""
    table = load_from_hub(HUB_NAME, "train", f"give paths.data=FOLDER, a folder that holds {FILE_NAME}")
    yield HUB_NAME, table.column_names
    columns = ([*table[name]] for name in table.column_names)
    for number, values in enumerate(zip(*columns, strict=True), 1):
        yield f"{HUB_NAME}, record {number}", ["" if value is None else str(value) for value in values]


def _checked(rows: Iterator[Row]) -> Iterator[dict[str, str]]:
    """The records by the names of their columns; the first row holds these names."""
    place, header = next(rows)
    for column in COLUMNS:
        if header.count(column) != 1:
            amiss = "several columns" if column in header else "no column"
            raise DataError(f"{place}: {amiss} {column!r} among {', '.join(header)}; {FETCH_AGAIN}")
    for place, fields in rows:
        if len(fields) != len(header):
            raise DataError(
                f"{place}: the record has {len(fields)} fields, not {len(header)} as the header; {FETCH_AGAIN}"
            )
        record = dict(zip(header, fields, strict=True))
        for column in COLUMNS:
            if not record[column].strip():
                raise DataError(f"{place}: {column} is empty; {FETCH_AGAIN}, or remove the record")
        if (sentiment := record["airline_sentiment"]) not in CLASS_NAMES:
            raise DataError(
                f"{place}: airline_sentiment is {sentiment!r}, allowed are {', '.join(CLASS_NAMES)}; {FETCH_AGAIN}, or "
                "correct the label"
            )
        yield record
