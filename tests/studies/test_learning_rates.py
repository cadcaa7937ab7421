"""The study of learning rates, with one training of its own."""

from types import SimpleNamespace

import pytest

from studies import learning_rates, training
from studies.study import load_study

STUDY = load_study("learning_rates")


def test_each_seed_has_its_own_split_validation_part_and_tail(monkeypatch) -> None:
    runs = []

    def untrained(settings, folder) -> SimpleNamespace:
        runs.append(settings)
        metrics = {split: dict.fromkeys(of, 0.5) for split, of in learning_rates.MEASURED.items()}
        return SimpleNamespace(train=lambda: SimpleNamespace(metrics=metrics))

    monkeypatch.setattr(training, "Run", untrained)
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
