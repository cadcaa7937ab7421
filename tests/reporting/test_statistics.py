"""Means over seeds and their intervals."""

import math

import pandas as pd
import pytest

from reporting.statistics import Bootstrap, estimate, paired_difference

BOOTSTRAP = Bootstrap(confidence=0.95, resamples=999, seed=0)


def test_mean_and_deviation_match_a_hand_computation():
    ours = estimate(pd.Series([1.0, 2.0, 4.0]), BOOTSTRAP)
    assert ours.mean == pytest.approx(7 / 3)
    assert ours.std == pytest.approx(math.sqrt((16 + 1 + 25) / 9 / 2))
    assert ours.seeds == 3
    assert 1.0 <= ours.low < ours.mean < ours.high <= 4.0


def test_the_interval_is_repeatable_and_widens_with_confidence():
    values = pd.Series([0.1, 0.5, 0.2, 0.9, 0.4])
    narrow = estimate(values, Bootstrap(confidence=0.5, resamples=999, seed=0))
    wide = estimate(values, BOOTSTRAP)
    assert wide == estimate(values, BOOTSTRAP)
    assert wide.low < narrow.low < narrow.high < wide.high


def test_too_few_seeds_give_nan():
    one = estimate(pd.Series([0.5]), BOOTSTRAP)
    assert one.mean == 0.5
    assert all(map(math.isnan, (one.std, one.low, one.high)))
    assert math.isnan(estimate(pd.Series([], dtype=float), BOOTSTRAP).mean)


def test_a_seed_without_a_number_is_not_counted():
    assert estimate(pd.Series([0.5, math.nan, 0.7]), BOOTSTRAP) == estimate(pd.Series([0.5, 0.7]), BOOTSTRAP)


def test_differences_are_paired_by_seed():
    values = pd.Series({63: 0.9, 21: 0.7, 1: 0.1})
    reference = pd.Series({21: 0.6, 42: 0.0, 63: 0.5})
    assert paired_difference(values, reference).to_dict() == pytest.approx({21: 0.1, 63: 0.4})
