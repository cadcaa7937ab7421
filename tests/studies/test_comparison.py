"""Paired comparisons of two contenders."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from studies.comparison import CONFIDENCE, compare


def records(**values):
    """Records of a Brier score: for each contender the values of each data set, one of each split."""
    return pd.DataFrame(
        {"contender": name, "metric": "brier", "data_set": data_set, "split": split, "value": value}
        for name, sets in values.items()
        for data_set, splits in enumerate(sets)
        for split, value in enumerate(splits)
    )


def test_an_interval_is_that_of_the_t_test():
    values = np.random.default_rng(0).exponential(size=(7, 1))
    found = compare(records(ours=values, theirs=0 * values), "brier", "ours", "theirs", "data_set")
    expected = stats.ttest_1samp(values[:, 0], 0).confidence_interval(CONFIDENCE)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-12)


def test_the_splits_of_a_data_set_are_averaged_and_a_relative_change_is_of_the_opponent():
    given = records(ours=[[1, 2, 9], [8]], theirs=[[8], [16]])
    assert compare(given, "brier", "ours", "theirs", "data_set").difference == ((4 - 8) + (8 - 16)) / 2
    relative = compare(given, "brier", "ours", "theirs", "data_set", relative=True)
    assert str(relative) == "−50.0 % [−50.0 %, −50.0 %]"


@pytest.mark.parametrize(
    ("ours", "lower_is_better", "higher_is_better"),
    [
        ([[1], [2], [3]], "gain", "loss"),
        ([[9], [9], [9]], "loss", "gain"),
        ([[1], [9], [5]], "no gain", "no gain"),
        ([[1]], "undecided", "undecided"),
    ],
)
def test_a_verdict_needs_the_whole_interval_on_one_side(ours, lower_is_better, higher_is_better):
    theirs = [[5]] * len(ours)
    found = compare(records(ours=ours, theirs=theirs), "brier", "ours", "theirs", "data_set")
    assert found.verdict("lower") == lower_is_better
    assert found.verdict("higher") == higher_is_better


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_records_that_are_missing_or_not_finite_are_refused_and_not_left_out(value):
    one_each = pd.concat([records(ours=[[1]]), records(theirs=[[1]]).assign(data_set=7)])
    for given in (records(ours=[[1]]), one_each, records(ours=[[1], [3, value]], theirs=[[2], [3]])):
        with pytest.raises(ValueError, match="ours and theirs have no brier for the same data_set, or a value"):
            compare(given, "brier", "ours", "theirs", "data_set")
