"""The study of training recipes, without a training."""

from types import SimpleNamespace

import pandas as pd

from experiments.identity import ROOT
from reporting.records.collected_records import read_records
from studies import training, training_recipes
from studies.study import load_study

STUDY = load_study("training_recipes")


def test_a_recipe_differs_from_the_suites_experiment_where_its_name_says_so(monkeypatch) -> None:
    runs = []

    def untrained(settings, folder) -> SimpleNamespace:
        runs.append(settings)
        curves = [{"epoch": 1, "test/accuracy": 0.25, "train/accuracy": 0.5}]
        return SimpleNamespace(train=lambda: SimpleNamespace(curves=curves))

    monkeypatch.setattr(training, "Run", untrained)
    tasks = [task for task in training_recipes.tasks(STUDY.settings, None) if task["contender"] == "softmax"]
    rows = [training_recipes.measure(task, STUDY.settings, None) for task in tasks]
    assert [(row["metric"], row["value"]) for row in rows[0]] == [("test accuracy", 0.25), ("train accuracy", 0.5)]
    assert {run.trainer["max_epochs"] for run in runs} == {10}
    assert [run.data["batch_size"] for run in runs] == [256, 64, 64, 64, 64]
    assert [run.data["augmentation"] == "standard" for run in runs].index(True) == 1
    assert [run.model["pixel_std"] == [1, 1, 1] for run in runs].index(True) == 2
    assert [run.optimizer["learning_rate"] for run in runs] == [1e-3] * 3 + [1e-4, 1e-3]
    assert [run.optimizer["schedule"] for run in runs] == ["constant"] * 4 + ["cosine"]


def test_the_table_shows_the_last_epoch_of_our_experiment_and_of_each_recipe_beside_the_papers() -> None:
    rows = [
        {"recipe": "batches of 256", "contender": row, "epoch": epoch, "metric": metric, "value": epoch / 20}
        for row in STUDY.settings["rows"]
        for epoch in (9, 10)
        for metric in ("test accuracy", "train accuracy")
    ]
    [table] = training_recipes.report(pd.DataFrame(rows), STUDY.settings, STUDY.shown).tables.values()
    assert table["recipe"].to_list() == 2 * ["our experiment", "batches of 256"]
    assert table.iloc[1].to_list() == ["softmax", "batches of 256", "0.500", "0.287", "0.500", "0.876"]
    recorded = [one for one in read_records(ROOT / "results", "cifar100") if one.seed == STUDY.settings["seed"]]
    [softmax] = [one for one in recorded if one.config["activation"]["name"] == "softmax"]
    assert table.iloc[0, 2] == f"{softmax.curves[9]['test/accuracy']:.3f}"
