"""The study of calibration: its scores by hand and by slow definitions, its fits on examples that are made up."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import sharmix
from studies import calibration
from studies.calibration import calibration_scores, risk_coverage_area
from studies.logits import LabelledLogits
from studies.study import load_study

STUDY = load_study("calibration")
SETTINGS = STUDY.settings | {"splits": 3, "probability_sets": ["own"], "networks": {}}


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
    same = before["metric"].isin(["temperature", "q", "r"])
    assert before[same].equals(after[same])
    assert not before[~same].equals(after[~same])


def test_vector_scaling_by_the_log_loss_is_a_logistic_regression_of_one_logit_a_class():
    logits, labels, _ = examples()
    logits, labels = logits[:, :2], labels.clamp_max(1)
    found = calibration.vector_scaling(logits, labels, "log")(logits)
    signed = (logits * torch.tensor([-1.0, 1.0])).numpy()  # z₁ w₁ − z₀ w₀ + b
    expected = LogisticRegression(C=np.inf, tol=1e-8).fit(signed, labels.numpy()).predict_proba(signed)
    assert found.numpy() == pytest.approx(expected, abs=1e-4)


@pytest.mark.medium
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


def test_the_scores_of_four_examples():
    p = [[0.9, 0.1, 0.0], [0.5, 0.25, 0.25], [0.0, 1.0, 0.0], [0.2, 0.2, 0.6]]
    found = calibration_scores(torch.tensor(p, dtype=torch.float64), torch.tensor([0, 1, 2, 2]), bins=10)
    assert found["brier"] == pytest.approx((0.02 + 0.875 + 2 + 0.24) / 4)
    impossible = -math.log(np.finfo(np.float64).eps)  # the third example's label has probability 0
    assert found["nll"] == pytest.approx((-math.log(0.9) - math.log(0.25) + impossible - math.log(0.6)) / 4)
    assert found["zero_labels"] == 0.25
    assert found["accuracy"] == 0.5
    assert found["support"] == (2 + 3 + 1 + 3) / 4


def test_the_calibration_error_has_bins_of_equal_width_of_which_the_last_holds_1():
    p = torch.tensor([[1.0, 0.0], [0.95, 0.05], [0.45, 0.55], [0.4, 0.6]], dtype=torch.float64)
    labels = torch.tensor([1, 0, 1, 0])  # wrong and right; right; wrong
    found = calibration_scores(p, labels, bins=10)["ece"]
    last, middle, next_one = abs(0.5 - 0.975) * 2, abs(1 - 0.55), abs(0 - 0.6)
    assert found == pytest.approx((last + middle + next_one) / 4, abs=1e-6)


def test_rounding_above_1_is_no_logit():
    p = torch.tensor([[1 + 1e-12, 0.0], [1.0, 0.0]], dtype=torch.float64)
    assert calibration_scores(p, torch.tensor([0, 0]), bins=15)["ece"] == pytest.approx(0, abs=1e-6)


def test_the_area_under_the_risk_coverage_curve_is_that_of_all_orders_of_ties():
    confidence, wrong = np.array([1.0, 0.5, 1.0, 0.5, 0.25, 1.0]), np.array([0, 1, 1, 0, 1, 0])
    orders = [order for order in itertools.permutations(range(6)) if all(np.diff(confidence[list(order)]) <= 0)]
    areas = [(wrong[list(order)].cumsum() / np.arange(1, 7)).mean() for order in orders]
    assert len(orders) == 12
    assert risk_coverage_area(confidence, wrong) == pytest.approx(np.mean(areas))
    assert risk_coverage_area(np.array([0.9, 0.8, 0.7]), np.array([0, 1, 0])) == pytest.approx((0 + 1 / 2 + 1 / 3) / 3)
