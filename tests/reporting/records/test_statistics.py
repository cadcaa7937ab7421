"""Means over seeds and their intervals."""

import math

import pandas as pd
import pytest
from scipy import stats

from reporting.records.statistics import differ_from_zero, estimate, interval_beside


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


def test_the_interval_beside_another_mean_is_welchs():
    own, other = [1.0, 2.0, 4.0], [0.5, 3.0, 2.0, 5.0, 1.0]
    ours, deviation = estimate(pd.Series(own), 0.95), float(pd.Series(other).std())
    welch = stats.ttest_ind(own, other, equal_var=False).confidence_interval(0.95)
    mean = sum(other) / 5
    assert interval_beside(ours, deviation, 5, 0.95) == pytest.approx((welch.low + mean, welch.high + mean))


def test_another_mean_without_a_deviation_varies_as_ours():
    ours = estimate(pd.Series([1.0, 2.0, 4.0]), 0.95)
    low, high = interval_beside(ours, math.nan, 5, 0.95)
    assert high - low == pytest.approx((ours.high - ours.low) * math.sqrt(1 + 3 / 5))
    assert high + low == pytest.approx(2 * ours.mean)
    assert all(map(math.isnan, interval_beside(estimate(pd.Series([1.0]), 0.95), 0.1, 5, 0.95)))
    same = estimate(pd.Series([0.5, 0.5]), 0.95)
    assert interval_beside(same, math.nan, 5, 0.95) == interval_beside(same, 0.0, 5, 0.95) == (0.5, 0.5)


def test_holms_correction_stops_at_the_first_mean_that_may_be_zero():
    def with_p(p):  # of five seeds
        return estimate(pd.Series([-1.0, -0.5, 0, 0.5, 1.0]) + shift(p), 0.95)

    def shift(p):
        return stats.t.isf(p / 2, 4) * pd.Series([-1.0, -0.5, 0, 0.5, 1.0]).sem()

    limits = {"together": [0.012, 0.024, 0.03], "alone": [0.012, 0.026, 0.03], "none": [0.018, 0.024, 0.03]}
    found = {name: differ_from_zero([with_p(p) for p in values], 0.95) for name, values in limits.items()}
    # 0.05/3 = 0.0167, 0.05/2 = 0.025, 0.05
    assert found == {"together": [True] * 3, "alone": [True, False, False], "none": [False] * 3}
    one_seed, equal, apart = (estimate(pd.Series(values), 0.95) for values in ([1.0], [0.0, 0.0], [1.0, 1.0]))
    assert differ_from_zero([one_seed, equal, apart], 0.95) == [False, False, True]
