"""The study of learning rates, on made-up records and on one training of its own."""

from types import SimpleNamespace

import pandas as pd
import pytest

from studies import learning_rates
from studies.study import load_study

STUDY = load_study("learning_rates")
RATES = [0.001, 0.01]
SEEDS = [1, 2, 3]
# Mean accuracy by activation and rate, of the validation part and of the test split.
VALIDATION = {"softmax": (0.5, 0.75), "sparsemax": (0.75, 0.5), "1.5-entmax": (0.625, 0.625)}
TEST = {"softmax": (0.5, 0.625), "sparsemax": (0.6, 0.9), "1.5-entmax": (0.5, 0.25)}


def made_up() -> pd.DataFrame:
    return pd.DataFrame(
        {"data_set": "digits", "learning_rate": rate, "seed": seed, "contender": contender, "metric": metric}
        | {"value": values[contender][place] + 0.05 * seed}
        for contender in VALIDATION
        for place, rate in enumerate(RATES)
        for seed in SEEDS
        for metric, values in (
            ("validation macro_f1", VALIDATION),
            ("validation accuracy", TEST),  # would choose otherwise
            ("test accuracy", TEST),
            ("test sparsity", TEST),
        )
    )


def test_a_seeds_validation_part_chooses_the_rate_and_the_smaller_of_equal_ones() -> None:
    records = made_up()
    of_one = (records["seed"] == 1) & (records["contender"] == "softmax") & (records["learning_rate"] == 0.001)
    records.loc[of_one & (records["metric"] == "validation macro_f1"), "value"] = 1.0
    rates = learning_rates.own_rates(records, "macro_f1")
    assert rates["softmax"].to_dict() == {1: 0.001, 2: 0.01, 3: 0.01}
    assert {*rates["sparsemax"]} == {*rates["1.5-entmax"]} == {0.001}


def test_the_report_compares_at_one_rate_and_at_each_own() -> None:
    settings = STUDY.settings | {"contenders": dict.fromkeys(VALIDATION)}
    shown = STUDY.shown | {"common_rate": 0.001, "found": ["sparsemax"]}
    report = learning_rates.report(made_up(), settings, shown)
    table = report.tables["digits: test accuracy at one rate, and at each activation's own"].set_index("activation")
    assert table.loc["sparsemax", "minus softmax"] == "+0.1000 [+0.1000, +0.1000]"  # paired: seeds differ far more
    assert table.loc["sparsemax", "minus softmax at its own"] == "−0.0250 [−0.0250, −0.0250]"
    assert table.loc["softmax", "minus softmax"] == "–"
    assert table.loc["softmax", "at its own"].startswith("0.725")
    assert table.loc["softmax", "own rates"] == "0.01 to 0.01, median 0.01"
    by_rate = report.tables["digits: test accuracy by rate"].set_index("activation")
    assert by_rate.loc["sparsemax"].tolist() == ["0.700", "1.000"]
    common, own = report.findings
    assert (common.verdict, own.verdict, common.seeds) == ("gain", "loss", 3)
    assert "one learning rate for all (0.001)" in common.use


def test_each_seed_has_its_own_split_validation_part_and_tail(monkeypatch) -> None:
    runs = []

    def untrained(settings, folder) -> SimpleNamespace:
        runs.append(settings)
        metrics = {split: dict.fromkeys(of, 0.5) for split, of in learning_rates.MEASURED.items()}
        return SimpleNamespace(train=lambda: SimpleNamespace(metrics=metrics))

    monkeypatch.setattr(learning_rates, "Run", untrained)
    for data_set in STUDY.settings["data_sets"]:
        task = {"data_set": data_set, "contender": "softmax", "learning_rate": 0.03, "seed": 7}
        learning_rates.measure(task, STUDY.settings, None)
    assert [run.name for run in runs] == ["digits", "digits_lt", "airline"]
    for run in runs:
        seeds = {run.seed, run.data["split_seed"], run.data["validation_seed"], run.data.get("tail_seed", 7)}
        assert seeds == {7}
        assert run.data["validation_fraction"] == 0.2
        assert run.optimizer["learning_rate"] == 0.03


@pytest.mark.medium
def test_a_task_trains_at_its_rate_and_measures_both_splits(tmp_path) -> None:
    settings = STUDY.settings | {"contenders": {"softmax": ["activation=softmax", "trainer.max_epochs=2"]}}

    def measured(rate: float) -> dict[str, float]:
        task = {"data_set": "digits", "contender": "softmax", "learning_rate": rate, "seed": 1}
        assert task in learning_rates.tasks(settings | {"learning_rates": [rate]}, None)
        return {row["metric"]: row["value"] for row in learning_rates.measure(task, settings, None)}

    slow, fast = measured(1e-5), measured(1e-2)
    assert set(slow) == {f"{split} {name}" for split, names in learning_rates.MEASURED.items() for name in names}
    assert fast["validation accuracy"] > slow["validation accuracy"] + 0.2
    assert fast["test sparsity"] == 0
