"""Means over seeds and their intervals."""

import math

import pandas as pd
import pytest

from reporting.statistics import Bootstrap, estimate

BOOTSTRAP = Bootstrap(confidence=0.95, resamples=999, seed=0)


def test_mean_and_deviation_match_a_hand_computation():
    ours = estimate(pd.Series([1.0, 2.0, 4.0]), BOOTSTRAP)
    assert ours.mean == pytest.approx(7 / 3)
    assert ours.std == pytest.approx(math.sqrt((16 + 1 + 25) / 9 / 2))
    assert ours.seeds == 3
    assert 1.0 <= ours.low < ours.mean < ours.high <= 4.0


def test_too_few_seeds_give_nan():
    one = estimate(pd.Series([0.5]), BOOTSTRAP)
    assert one.mean == 0.5
    assert all(map(math.isnan, (one.std, one.low, one.high)))
    assert math.isnan(estimate(pd.Series([], dtype=float), BOOTSTRAP).mean)


def test_a_seed_without_a_number_is_not_counted():
    assert estimate(pd.Series([0.5, math.nan, 0.7]), BOOTSTRAP) == estimate(pd.Series([0.5, 0.7]), BOOTSTRAP)
