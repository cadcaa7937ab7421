"""Means over seeds and their intervals."""

from collections.abc import Sequence
from itertools import takewhile
from math import isnan, nan, sqrt
from typing import NamedTuple

import pandas as pd
from scipy import stats

POINTS = 100  # percentage points in a fraction of 1


class Estimate(NamedTuple):
    """A quantity over seeds; NaN for numbers that need more seeds."""

    mean: float
    std: float  # with n − 1 in the denominator
    seeds: int
    low: float  # the ends of the interval of the mean
    high: float


def estimate(values: pd.Series, confidence: float) -> Estimate:
    """Mean, standard deviation and Student's t interval of values over seeds; `confidence` is such as 0.95."""
    values = values.dropna()
    mean, count = float(values.mean()), len(values)
    half_width = float(stats.t.ppf((1 + confidence) / 2, count - 1) * values.sem())
    return Estimate(mean, float(values.std()), count, mean - half_width, mean + half_width)


def interval_beside(ours: Estimate, their_std: float, their_runs: int, confidence: float) -> tuple[float, float]:
    """Where another mean over runs can lie beside ours: Welch's interval of the difference of both means, around ours.

    With NaN as its standard deviation the other mean is taken to vary as ours does.
    """
    if ours.seeds < 2:
        return nan, nan
    own = ours.std**2 / ours.seeds
    if isnan(their_std):
        variance, freedom = own + ours.std**2 / their_runs, ours.seeds - 1.0
    else:
        theirs = their_std**2 / their_runs
        variance = own + theirs
        freedom = variance**2 / (own**2 / (ours.seeds - 1) + theirs**2 / (their_runs - 1)) if variance else 1.0
    half_width = float(stats.t.ppf((1 + confidence) / 2, freedom)) * sqrt(variance)
    return ours.mean - half_width, ours.mean + half_width


def paired_difference(values: pd.Series, reference: pd.Series) -> pd.Series:
    """Difference `values − reference` for every seed that both have."""
    return (values - reference).dropna()


def differ_from_zero(estimates: Sequence[Estimate], confidence: float) -> list[bool]:
    """Which of several means differ from 0: two-sided t-tests, with Holm's correction for their number."""
    p_values = [_p_value(one) for one in estimates]
    tested = sorted(p for p in p_values if not isnan(p))
    found = takewhile(lambda ranked: ranked[1] <= (1 - confidence) / (len(tested) - ranked[0]), enumerate(tested))
    largest = max((p for _, p in found), default=-1.0)
    return [p <= largest for p in p_values]


def _p_value(ours: Estimate) -> float:
    """The probability, if the true mean is 0, of a mean as far from 0; NaN where one seed or no number tells none."""
    if ours.seeds < 2 or (ours.std == 0 and ours.mean == 0):
        return nan
    return float(2 * stats.t.sf(abs(ours.mean) * sqrt(ours.seeds) / ours.std, ours.seeds - 1)) if ours.std else 0.0
