"""Means over seeds and their bootstrap intervals."""

from collections.abc import Callable
from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from reporting.declaration import Bootstrap

POINTS = 100  # percentage points in a fraction of 1


@dataclass(frozen=True)
class Estimate:
    """A quantity over seeds; NaN for numbers that need more seeds.

    Attributes:
        mean: mean over the seeds.
        std: standard deviation over the seeds, with n − 1 in the denominator.
        seeds: number of seeds.
        low: lower end of the bootstrap interval of the mean.
        high: upper end of it.
    """

    mean: float
    std: float
    seeds: int
    low: float
    high: float


def estimate(values: pd.Series, bootstrap: Bootstrap) -> Estimate:
    """Mean, standard deviation and percentile bootstrap interval of values over seeds.

    The percentile interval is defined for constant values too, where the bias-corrected one is
    0/0. With few seeds it is narrow: from five normal values a 95 % interval covers the mean in
    about 84 % of the cases.

    Source: B. Efron and R. Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13.
    """
    values = values.dropna()
    low, high = bootstrap_interval(values.to_numpy(), np.mean, bootstrap)
    return Estimate(float(values.mean()), float(values.std()), len(values), low, high)


def bootstrap_interval(values: ArrayLike, statistic: Callable[..., Any], bootstrap: Bootstrap) -> tuple[float, float]:
    """Both ends of the percentile bootstrap interval of a statistic; NaN for fewer than two values."""
    sample = np.asarray(values)
    if len(sample) < 2:
        return nan, nan
    interval = stats.bootstrap(
        (sample,),
        statistic,
        confidence_level=bootstrap.confidence,
        n_resamples=bootstrap.resamples,
        method="percentile",
        rng=np.random.default_rng(bootstrap.seed),
    ).confidence_interval
    return float(interval.low), float(interval.high)


def paired_difference(values: pd.Series, reference: pd.Series) -> pd.Series:
    """Difference `values − reference` for every seed that both have."""
    return (values - reference).dropna()
