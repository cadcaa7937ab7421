"""Means over seeds and their intervals."""

import math

import pandas as pd
import pytest

from reporting.records.statistics import estimate


def test_mean_deviation_and_interval_match_a_hand_computation():
    ours = estimate(pd.Series([1.0, 2.0, 4.0]), 0.95)
    deviation = math.sqrt((16 + 1 + 25) / 9 / 2)
    half_width = 4.302653 * deviation / math.sqrt(3)  # Student's t, 2 degrees of freedom, from a printed table
    assert ours.mean == pytest.approx(7 / 3)
    assert ours.std == pytest.approx(deviation)
    assert ours.seeds == 3
    assert (ours.low, ours.high) == pytest.approx((7 / 3 - half_width, 7 / 3 + half_width))


def test_equal_values_have_an_interval_without_width():
    ours = estimate(pd.Series([0.5, 0.5]), 0.95)
    assert (ours.low, ours.high) == (0.5, 0.5)


def test_too_few_seeds_give_nan():
    one = estimate(pd.Series([0.5]), 0.95)
    assert one.mean == 0.5
    assert all(map(math.isnan, (one.std, one.low, one.high)))
    assert math.isnan(estimate(pd.Series([], dtype=float), 0.95).mean)


def test_a_seed_without_a_number_is_not_counted():
    assert estimate(pd.Series([0.5, math.nan, 0.7]), 0.95) == estimate(pd.Series([0.5, 0.7]), 0.95)
