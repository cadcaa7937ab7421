"""The Airline Tweets data set: three sentiments, from the Hugging Face hub or from a folder."""

import csv
import io
import re
from collections import Counter
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from experiments.data.base import ClassificationDataModule
from experiments.data.examples import ClassificationData, InMemory
from experiments.data.hub import load_from_hub
from experiments.data.splits import Indices, groups_of_repeats, oversampled, stratified_group_split
from experiments.data.text import Tokenize, Vocabulary, filled_lines_of, tweet_tokens
from experiments.errors import DataError, reading
from experiments.files import read_file, text_of
from experiments.settings import AtLeastOne, OpenShare, Seed, validated_class

CLASS_NAMES = ("negative", "neutral", "positive")
COLUMNS = ("tweet_id", "text", "airline_sentiment")
HUB_NAME = "osanseviero/twitter-airline-sentiment"
FILE_NAME = "airline/Tweets.csv"
FETCH_AGAIN = f"fetch Tweets.csv again, from {HUB_NAME} on the Hugging Face hub"

Record = dict[str, str]  # the values by the names of their columns


@validated_class
class AirlineDataModule(ClassificationDataModule):
    """Airline Tweets: token numbers, int64 [n, max_length], 0 for padding and 1 for unknown tokens.

    Copies of a tweet are on one side of the split; the vocabulary comes from the training tweets.

    Arguments: `conf/data/airline.yaml`.
    Source: CrowdFlower, Twitter US Airline Sentiment, 14,640 tweets of February 2015.
    """

    folder: Path | None = None
    tokenize: Tokenize = tweet_tokens
    max_length: AtLeastOne
    minimum_count: AtLeastOne
    vocabulary_of: Literal["train", "all"] = "train"
    test_fraction: OpenShare
    split_seed: Seed | None
    trained_on: Literal["train", "all"] = "train"
    oversampled: Literal["never", "before_split", "after_split"] = "never"

    @property
    def drawn_by_seed(self) -> bool:
        return self.split_seed is None

    def load(self) -> ClassificationData:
        if self.folder:
            source, records = str(self.folder / FILE_NAME), _of_file(self.folder / FILE_NAME)
        else:
            source = f"{HUB_NAME} on the Hugging Face hub"
            table = load_from_hub(HUB_NAME, "train", f"give paths.data=FOLDER, a folder that holds {FILE_NAME}")
            records = [{name: str(row.get(name) or "") for name in COLUMNS} for row in table.to_list()]
        self.check_count("all", len(records), source, FETCH_AGAIN)
        for number, record in enumerate(records, 1):
            for column in COLUMNS:
                if not (record.get(column) or "").strip():  # as in a file that is cut off
                    raise DataError(f"{source}, record {number}: has no {column}; {FETCH_AGAIN}")
            if not re.fullmatch("[0-9]+", record["tweet_id"]):  # a spreadsheet makes 5.70306E+17 of many ids
                raise DataError(
                    f"{source}, record {number}: tweet_id={record['tweet_id']} is not a whole number; {FETCH_AGAIN}"
                )
            if record["airline_sentiment"] not in CLASS_NAMES:
                raise DataError(
                    f"{source}, record {number}: airline_sentiment must be one of {', '.join(CLASS_NAMES)}; "
                    f"{FETCH_AGAIN}"
                )
        ids, texts, sentiments = ([record[column] for record in records] for column in COLUMNS)
        classes = Counter(sentiments)
        targets = torch.tensor([CLASS_NAMES.index(sentiment) for sentiment in sentiments])
        train, test, groups = self._split(ids, texts, targets)

        tokens = [tweet[: self.max_length] for tweet in self.tokenize(texts)]
        remaining, _ = self.split_for_validation(targets[train], groups[train])
        known = train[remaining] if self.vocabulary_of == "train" else range(len(tokens))
        vocabulary = Vocabulary((tokens[i] for i in known), self.minimum_count)
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
            encode=lambda content: (
                vocabulary.encode(self.tokenize(filled_lines_of(content)), self.max_length),
                filled_lines_of(content),
            ),
        )

    def _split(self, ids: list[str], texts: list[str], targets: Tensor) -> tuple[Indices, Indices, Indices]:
        """The numbers of the training and of the test tweets, and the group of repeats of each tweet."""
        groups, tweets = groups_of_repeats(ids, texts), np.arange(len(texts))
        seed = self.seed if self.split_seed is None else self.split_seed
        if self.oversampled == "before_split":  # copies of one tweet may then be on both sides
            tweets = oversampled(targets.numpy(), seed)
        own = np.arange(len(tweets)) if self.oversampled == "before_split" else groups
        train, test = stratified_group_split(targets[tweets], own, self.test_fraction, seed, "data.test_fraction")
        train, test = tweets[train], tweets[test]
        if self.oversampled == "after_split":
            train = train[oversampled(targets[train].numpy(), seed)]
        return train if self.trained_on == "train" else tweets, test, groups


def _of_file(path: Path) -> list[Record]:
    remedy = f"{FETCH_AGAIN}, as {FILE_NAME} in the folder paths.data, or give paths.data=null to load it from the hub"
    with reading(path, remedy):
        return [*csv.DictReader(io.StringIO(text_of(read_file(path)), newline=""), strict=True)]
