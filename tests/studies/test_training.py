"""The studies that train runs of the suite: what they train, one training, and a table."""

from itertools import product
from types import SimpleNamespace

import pandas as pd
import pytest

from experiments.identity import ROOT
from reporting.records.collected_records import read_records
from studies import learning_rates, training, training_recipes
from studies.study import load_study

RATES, RECIPES = load_study("learning_rates"), load_study("training_recipes")


@pytest.fixture
def untrained(monkeypatch):
    """untrained(NAME=VALUE, ...) ends each training at once with these parts of its record; returns all settings."""

    def end_at_once(**record):
        runs = []

        def run(settings, folder):
            runs.append(settings)
            return SimpleNamespace(train=lambda: SimpleNamespace(**record))

        monkeypatch.setattr(training, "Run", run)
        return runs

    return end_at_once


def test_each_seed_has_its_own_split_validation_part_and_tail(untrained):
    runs = untrained(metrics={split: dict.fromkeys(of, 0.5) for split, of in learning_rates.MEASURED.items()})
    for data_set in RATES.settings["data_sets"]:
        task = {"data_set": data_set, "contender": "softmax", "learning_rate": 0.03, "seed": 7}
        learning_rates.measure(task, RATES.settings, None)
    assert [run.name for run in runs] == ["digits", "digits_lt", "airline"]
    for run in runs:
        seeds = {run.seed, run.data["split_seed"], run.data["validation_seed"], run.data.get("tail_seed", 7)}
        assert seeds == {7}
        assert run.data["validation_fraction"] == 0.2
        assert run.optimizer["learning_rate"] == 0.03


@pytest.mark.medium
def test_a_task_trains_at_its_rate_and_measures_both_splits(tmp_path):
    settings = RATES.settings | {"contenders": {"softmax": ["activation=softmax", "trainer.max_epochs=2"]}}

    def measured(rate):
        task = {"data_set": "digits", "contender": "softmax", "learning_rate": rate, "seed": 1}
        assert task in learning_rates.tasks(settings | {"learning_rates": [rate]}, None)
        return {row["metric"]: row["value"] for row in learning_rates.measure(task, settings, None)}

    slow, fast = measured(1e-5), measured(1e-2)
    assert set(slow) == {f"{split} {name}" for split, names in learning_rates.MEASURED.items() for name in names}
    assert fast["validation accuracy"] > slow["validation accuracy"] + 0.2
    assert fast["test sparsity"] == 0


def test_each_seed_has_the_rate_that_is_best_for_it_and_the_smallest_of_equal_ones():
    values = {(1, 0.1): 0.5, (1, 0.3): 0.7, (2, 0.1): 0.9, (2, 0.3): 0.9}
    records = pd.DataFrame(
        {"contender": "softmax", "seed": seed, "learning_rate": rate, "metric": "validation accuracy", "value": value}
        for (seed, rate), value in values.items()
    )
    assert learning_rates.own_rates(records, "accuracy").to_list() == [0.3, 0.1]


def test_the_table_of_rates_shows_the_common_rate_and_the_range_of_the_own_ones():
    rates = (0.1, 0.3, 0.9)  # each is best for one seed; the test accuracy is half the rate
    records = pd.DataFrame(
        {"data_set": "digits", "contender": contender, "seed": seed, "learning_rate": rate}
        | {"metric": f"{split} accuracy", "value": rate / 2 if split == "test" else float(rates[seed] == rate)}
        for contender, seed, rate, split in product(("softmax", "entmax"), range(3), rates, ("validation", "test"))
    )
    shown = {"chosen_by": "accuracy", "common_rate": 0.1, "found": [], "notes": []}
    table, numbers = learning_rates.report(records, {"contenders": ["softmax", "entmax"]}, shown).tables.values()
    softmax, entmax = table.to_dict("records")
    assert entmax["at 0.1"] == "0.050 [0.050, 0.050]"
    assert entmax["own rates"] == "0.1 to 0.9, median 0.3"
    assert entmax["at its own"].startswith("0.217 [")
    assert numbers.to_dict("records") == [{"activation": "entmax", "difference": 0, "low": 0, "high": 0}]
    assert (softmax["minus softmax"], entmax["minus softmax"]) == ("–", "+0.0000 [+0.0000, +0.0000]")


@pytest.mark.medium
def test_a_recipe_differs_from_the_suites_experiment_where_its_name_says_so(untrained):
    runs = untrained(curves=[{"epoch": 1, "test/accuracy": 0.25, "train/accuracy": 0.5}])
    tasks = [task for task in training_recipes.tasks(RECIPES.settings, None) if task["contender"] == "softmax"]
    rows = [training_recipes.measure(task, RECIPES.settings, None) for task in tasks]
    assert [(row["metric"], row["value"]) for row in rows[0]] == [("test accuracy", 0.25), ("train accuracy", 0.5)]
    assert {run.trainer["max_epochs"] for run in runs} == {10}
    assert [run.data["batch_size"] for run in runs] == [256, 64, 64, 64, 64]
    assert [run.data["augmentation"] == "standard" for run in runs].index(True) == 1
    assert [run.model["pixel_std"] == [1, 1, 1] for run in runs].index(True) == 2
    assert [run.optimizer["learning_rate"] for run in runs] == [1e-3] * 3 + [1e-4, 1e-3]
    assert [run.optimizer["schedule"] for run in runs] == ["constant"] * 4 + ["cosine"]


def test_the_table_shows_the_last_epoch_of_our_experiment_and_of_each_recipe_beside_the_papers():
    rows = [
        {"recipe": "batches of 256", "contender": row, "epoch": epoch, "metric": metric, "value": epoch / 20}
        for row in RECIPES.settings["rows"]
        for epoch in (9, 10)
        for metric in ("test accuracy", "train accuracy")
    ]
    [table] = training_recipes.report(pd.DataFrame(rows), RECIPES.settings, RECIPES.shown).tables.values()
    assert table["recipe"].to_list() == 2 * ["our experiment", "batches of 256"]
    assert table.iloc[1].to_list() == ["softmax", "batches of 256", "0.500", "0.287", "0.500", "0.876"]
    recorded = [one for one in read_records(ROOT / "results", "cifar100") if one.seed == RECIPES.settings["seed"]]
    [softmax] = [one for one in recorded if one.config["activation"]["name"] == "softmax"]
    assert table.iloc[0, 2] == f"{softmax.curves[9]['test/accuracy']:.3f}"
