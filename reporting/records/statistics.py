"""Means over seeds and their intervals."""

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


def paired_difference(values: pd.Series, reference: pd.Series) -> pd.Series:
    """Difference `values − reference` for every seed that both have."""
    return (values - reference).dropna()
