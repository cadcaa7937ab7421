"""The study of calibration, on examples that are made up."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import sharmix
from studies import calibration
from studies.logits import LabelledLogits
from studies.study import load_study

STUDY = load_study("calibration")
SETTINGS = STUDY.settings | {
    "splits": 3,
    "probability_sets": ["own"],
    "networks": {},
}
FITTED = ["temperature", "q", "r"]


def examples(factor=1.0):
    """Labels drawn from softmax(z), and the logits `factor` · z."""
    generator = torch.Generator().manual_seed(0)
    z = 2 * torch.randn(600, 3, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(z.softmax(-1), 1, generator=generator).squeeze(-1)
    return LabelledLogits(factor * z, labels, sharmix.Softmax())


def measured(found, monkeypatch, task):
    monkeypatch.setattr(calibration, "logits_of", lambda source, seed, settings, data: found)
    return pd.DataFrame(calibration.measure(task, SETTINGS, None))


@pytest.mark.medium
def test_temperature_scaling_finds_the_factor_and_all_contenders_are_scored(monkeypatch):
    rows = measured(examples(factor=3.0), monkeypatch, calibration.tasks(SETTINGS, None)[0])
    table = rows.pivot(index=["fitted_by", "contender"], columns="metric", values="value")
    assert table.loc[("log", "temperature"), "temperature"] == pytest.approx(3.0, rel=0.2)
    assert table.loc[("brier", "temperature"), "brier"] < table.loc[("brier", "none"), "brier"]
    assert sorted(table.loc["brier"].index) == ["SharMiX", "entmax", "none", "r", "temperature", "vector"]
    assert table.loc[("log", "entmax"), "q"] == table.loc[("log", "entmax"), "r"]


@pytest.mark.slow
def test_nothing_is_fitted_to_the_test_part(monkeypatch):
    given = examples()
    task = calibration.tasks(SETTINGS, None)[1]
    before = measured(given, monkeypatch, task)
    share, split = SETTINGS["calibration_share"], task["split"]
    _, test = calibration.train_test_split(np.arange(len(given.labels)), train_size=share, random_state=split)
    given.labels[test] = (given.labels[test] + 1) % 3
    after = measured(given, monkeypatch, task)
    same = before["metric"].isin(FITTED)
    assert before[same].equals(after[same])
    assert not before[~same].equals(after[~same])


def test_vector_scaling_by_the_log_loss_is_a_logistic_regression_of_one_logit_a_class():
    logits, labels, _ = examples()
    logits, labels = logits[:, :2], labels.clamp_max(1)
    found = calibration.vector_scaling(logits, labels, "log")(logits)
    signed = (logits * torch.tensor([-1.0, 1.0])).numpy()  # z₁ w₁ − z₀ w₀ + b
    expected = LogisticRegression(C=np.inf, tol=1e-8).fit(signed, labels.numpy()).predict_proba(signed)
    assert found.numpy() == pytest.approx(expected, abs=1e-4)


def test_vector_scaling_by_the_brier_score_has_a_minimum_of_it():
    logits, labels, _ = examples()
    wanted = torch.nn.functional.one_hot(labels, 3)

    def brier(z):
        p = calibration.vector_scaling(logits, labels, "brier")(z)
        return (p - wanted).square().sum(-1).mean()

    least = brier(logits)
    for column in range(3):
        for change in (0.98, 1.02):
            moved = logits.clone()
            moved[:, column] *= change
            assert brier(moved) > least
