"""The value that a sweeper optimises, and those that it must not."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from experiments.errors import ConfigurationError
from experiments.folder_lock import held
from experiments.job import check_objective, objective
from experiments.record import Record
from experiments.settings import RunSettings
from tests.experiments.building import settings

CLASSIFIED = Record.model_construct(
    metrics={
        "train": {"accuracy": 0.9},
        "validation": {"accuracy": 0.7, "brier": 0.4},
        "test": {"accuracy": 0.8, "brier": 0.3},
    }
)
TRANSLATED = Record.model_construct(
    metrics={"train": {"loss": 2.0}, "dev": {"bleu": 30.0, "chrf": 50.0}, "test": {"bleu": 31.0}}
)


@pytest.fixture(scope="module")
def run() -> RunSettings:
    return settings("experiment=digits", "data.validation_fraction=0.2")


def asking(run: RunSettings, wanted: str | None) -> RunSettings:
    return run.model_copy(update={"objective": wanted})


def test_the_objective_is_the_metric_asked_for_or_the_main_one(run: RunSettings) -> None:
    for record, wanted, expected in (
        (CLASSIFIED, None, 0.7),
        (CLASSIFIED, "validation/brier", 0.4),
        (CLASSIFIED, "train/accuracy", 0.9),
        (TRANSLATED, None, 30.0),
        (TRANSLATED, "dev/chrf", 50.0),
    ):
        check_objective(wanted, 0.2)
        assert objective(asking(run, wanted), record) == expected, wanted


def test_a_metric_that_was_not_measured_is_named_with_those_that_were(run: RunSettings) -> None:
    records = (
        (CLASSIFIED, "validation/luck", ["objective=validation/luck", "validation/accuracy, validation/brier"]),
        (CLASSIFIED, "dev/bleu", ["objective=dev/bleu was not measured"]),
        (CLASSIFIED, "accuracy", ["objective=accuracy/ was not measured"]),
        (TRANSLATED, "validation/accuracy", ["dev/bleu, dev/chrf"]),
    )
    for record, wanted, said in records:
        with pytest.raises(ConfigurationError) as error:
            objective(asking(run, wanted), record)
        for words in said:
            assert words in str(error.value), wanted
        assert "test/" not in str(error.value), wanted


def test_nothing_is_chosen_on_the_test_split(run: RunSettings) -> None:
    with pytest.raises(
        ConfigurationError, match="objective=test/accuracy is not allowed: nothing is chosen on the test split"
    ):
        check_objective("test/accuracy", 0.2)


def test_nothing_is_chosen_where_there_is_no_part_to_choose_on() -> None:
    with pytest.raises(ConfigurationError, match=r"data\.validation_fraction=0 leaves nothing to choose settings on"):
        check_objective(None, 0.0)
    check_objective(None, None)  # as translation, which has dev


def test_two_who_want_a_folder_have_it_one_after_the_other(tmp_path: Path) -> None:
    told: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        with held(tmp_path / "run", lambda: told.append("first")):
            second = pool.submit(have, tmp_path / "run", told)
            while not told:
                time.sleep(0.01)
            told.append("first ends")
        second.result(timeout=10)
    assert told == ["waits", "first ends", "has it"]
    with held(tmp_path / "run", lambda: told.append("third")):
        assert "third" not in told


def have(folder: Path, told: list[str]) -> None:
    with held(folder, lambda: told.append("waits")):
        told.append("has it")


def test_whoever_waits_for_a_folder_that_is_removed_has_the_new_one(tmp_path: Path) -> None:
    told: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        with held(tmp_path / "run", lambda: told.append("first")):
            second = pool.submit(have, tmp_path / "run", told)
            while not told:
                time.sleep(0.01)
            (tmp_path / "run").rmdir()
        second.result(timeout=10)
    assert told == ["waits", "has it"]
    assert (tmp_path / "run").is_dir()
