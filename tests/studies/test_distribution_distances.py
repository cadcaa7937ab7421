"""Distances between label distributions, computed by hand."""

import math

import numpy as np
import pytest

from studies.soft_labels import distribution_distances

EPSILON = np.finfo(np.float64).eps


def test_the_distances_of_two_distributions():
    found = distribution_distances(np.array([[0.5, 0.3, 0.2, 0.0]]), np.array([[0.2, 0.8, 0.0, 0.0]]))
    ratios = 0.3 / 0.7, 0.5 / 1.1, 1.0, 0.0
    assert found == pytest.approx(
        {
            "chebyshev": 0.5,
            "clark": math.sqrt(sum(ratio**2 for ratio in ratios)),
            "canberra": sum(ratios),
            "kl": 0.5 * math.log(0.5 / 0.2) + 0.3 * math.log(0.3 / 0.8) + 0.2 * math.log(0.2 / EPSILON),
            "cosine": 0.34 / math.sqrt(0.38 * 0.68),
            "intersection": 0.2 + 0.3,
            "support_f1": 2 * 2 / (2 + 3),
        }
    )
