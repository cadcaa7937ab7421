"""The published numbers of examples: another number is one error, unless the setting allows it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

from experiments.data.airline import AirlineDataModule
from experiments.data.base import SplitDataModule
from experiments.data.cifar100 import Cifar100DataModule
from experiments.data.digits import DigitsDataModule
from experiments.data.imagenet import ImagenetDataModule
from experiments.data.parallel_corpus import ParallelCorpusDataModule
from experiments.errors import ConfigurationError, DataError
from experiments.identity import run_id
from experiments.settings import build
from tests.experiments.building import composed, settings
from tests.experiments.data.generated import GERMAN, lines, tweets, write_pairs, write_tweets
from tests.experiments.data.support import BATCHES
from tests.experiments.data.test_imagenet import COUNTS, LONG_TAILED, published_lines, write_counts, write_list
from tests.experiments.data.test_imagenet import SETTINGS as PHOTOGRAPHS
from tests.experiments.data.test_parallel_corpus import SETTINGS as CORPUS

# As the data sets' homes publish them; the last two by the cards of may-ohta/iwslt14 and wmt/wmt14.
PUBLISHED = {
    "airline": {"all": 14_640},
    "cifar100": {"train": 50_000, "test": 10_000},
    "digits": {"all": 1_797},
    "imagenet_balanced": {"train": 1_281_167, "test": 50_000},
    "multi30k": {"train": 29_000, "dev": 1_014, "test": 1_000},
    "iwslt14": {"train": 171_721, "dev": 2_082, "test": 4_782},
    "wmt14": {"train": 4_508_785, "dev": 3_000, "test": 3_003},
}
SPLIT = {"test_fraction": 0.2, "split_seed": 21}
TWEETS = {"max_length": 6, "minimum_count": 1, **SPLIT}
Expected = dict[str, int] | None


@pytest.mark.medium
def test_each_data_set_expects_the_published_numbers() -> None:
    for experiment, expected in PUBLISHED.items():
        found = settings(f"experiment={experiment}")
        assert found.data["expected_examples"] == expected, experiment
        changed = settings(f"experiment={experiment}", "data.expected_examples=null")
        assert changed.data["expected_examples"] is None, experiment


@pytest.mark.medium
def test_the_numbers_name_no_other_run() -> None:
    for experiment in PUBLISHED:
        whole, any_number = (
            run_id(composed(f"experiment={experiment}", *changes)) for changes in ((), ("data.expected_examples=null",))
        )
        older = OmegaConf.to_container(composed(f"experiment={experiment}"), resolve=False)
        del older["data"]["expected_examples"]
        assert whole == any_number == run_id(OmegaConf.create(older)), experiment


def refusal(data: SplitDataModule) -> str:
    with pytest.raises(DataError) as caught:
        data.setup()
    return str(caught.value)


def check(make: Callable[[Expected], SplitDataModule], there: dict[str, int], place: str, remedy: str) -> None:
    """The numbers that are there load, and so does any number without the setting; each other number is refused."""
    for expected in (there, None):
        make(expected).setup()
    for part, count in there.items():
        said = refusal(make(there | {part: count + 1}))
        for words in (place, f"{count:,} examples, {count + 1:,} are expected", remedy, "data.expected_examples=null"):
            assert words in said, (part, words, said)
        assert "\n" not in said


def test_tweets(tweets_folder: Path) -> None:
    check(
        lambda expected: AirlineDataModule(folder=tweets_folder, expected_examples=expected, **TWEETS, **BATCHES),
        {"all": 60},
        "airline/Tweets.csv: ",
        "fetch Tweets.csv again",
    )


def test_a_misspelt_part_does_not_switch_the_check_off(tweets_folder: Path) -> None:
    tweets = AirlineDataModule(folder=tweets_folder, expected_examples={"al": 60}, **TWEETS, **BATCHES)
    with pytest.raises(ConfigurationError, match=r"data\.expected_examples=\{'al': 60\} does not have 'all'; add it"):
        tweets.setup()


def test_a_file_cut_at_a_line_end_is_refused(tweets_folder: Path) -> None:
    write_tweets(tweets_folder, tweets()[:40])
    cut = AirlineDataModule(folder=tweets_folder, expected_examples={"all": 60}, **TWEETS, **BATCHES)
    assert "40 examples, 60 are expected" in refusal(cut)


def test_cifar(cifar: Path) -> None:
    check(
        lambda expected: Cifar100DataModule(folder=cifar, expected_examples=expected, **BATCHES),
        {"train": 500, "test": 200},
        ".parquet: ",
        "fetch it again",
    )


def test_digits() -> None:
    check(
        lambda expected: DigitsDataModule(expected_examples=expected, **SPLIT, **BATCHES),
        {"all": 1797},
        "digits.csv.gz: ",
        "install scikit-learn again",
    )


def test_a_parallel_corpus_counts_lines_not_usable_pairs(pairs_folder: Path) -> None:
    write_pairs(pairs_folder, "test", lines(["", *GERMAN]), lines(["nothing", *GERMAN]))
    check(
        lambda expected: ParallelCorpusDataModule(folder=pairs_folder, expected_examples=expected, **CORPUS | BATCHES),
        {"train": 20, "dev": 20, "test": 21},
        "/pairs, ",
        "fetch the files again",
    )


def photographs(folder: Path, expected: Expected, **changes: Any) -> ImagenetDataModule:
    return ImagenetDataModule(folder=folder, expected_examples=expected, **PHOTOGRAPHS | BATCHES | changes)


def test_photographs(photos: Path) -> None:
    make = lambda expected: photographs(photos, expected)  # noqa: E731
    check(make, {"train": 1009, "test": 1000}, "/photos, ", "restore its images")


@pytest.mark.medium
def test_a_folder_may_hold_the_listed_images_alone(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").symlink_to(photos / "photos")
    expected = {"train": 1_281_167, "test": 1000}
    write_counts(tmp_path, COUNTS)
    assert "train: 1,009 examples, 1,281,167 are expected" in refusal(photographs(tmp_path, expected, **LONG_TAILED))
    write_list(tmp_path, published_lines())
    photographs(tmp_path, expected, **LONG_TAILED).setup()
    assert "the test side: 1,000 examples" in refusal(photographs(tmp_path, expected | {"test": 50_000}, **LONG_TAILED))


def test_the_tail_that_a_user_asks_for_is_no_wrong_number(cifar: Path) -> None:
    options = {"imbalance": 5, "validation_fraction": 0.2, "expected_examples": {"train": 500, "test": 200}}
    data = Cifar100DataModule(folder=cifar, **options, **BATCHES)
    data.setup()
    assert len(data.data.train.targets) < 400


def test_the_record_keeps_the_setting_as_it_was_given() -> None:
    config = settings("experiment=digits", "data.expected_examples=null").model_dump_json()
    assert json.loads(config)["data"]["expected_examples"] is None
    data = build(settings("experiment=digits", "data.expected_examples={all: 1797}").data, "data")
    assert np.isin("all", [*data.expected_examples])
