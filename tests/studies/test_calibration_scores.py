"""Scores of calibration, against cases that are computed by hand and against slow definitions."""

import itertools
import math

import numpy as np
import pytest
import torch

from studies.calibration import calibration_scores, risk_coverage_area

PROBABILITIES = torch.tensor(
    [[0.9, 0.1, 0.0], [0.5, 0.25, 0.25], [0.0, 1.0, 0.0], [0.2, 0.2, 0.6]], dtype=torch.float64
)
LABELS = torch.tensor([0, 1, 2, 2])


def test_the_scores_of_four_examples():
    found = calibration_scores(PROBABILITIES, LABELS, bins=10)
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
