"""How goals of time are judged: by a whole interval, such as the bootstrap interval of a median."""

from collections.abc import Sequence
from math import nan

import numpy as np
from scipy import stats


def median_interval(values: Sequence[float], confidence: float) -> tuple[float, float]:
    """Both ends of the percentile bootstrap interval of the median; NaN for fewer than two values.

    Source: B. Efron and R. Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13.
    """
    if len(values) < 2:
        return nan, nan
    rng = np.random.default_rng(0)
    found = stats.bootstrap((values,), np.median, confidence_level=confidence, method="percentile", rng=rng)
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def at_most(goal: float, low: float, high: float) -> str:
    """`met` or `missed` where the whole interval is on one side of the goal, else `undecided`."""
    return "met" if high <= goal else "missed" if low > goal else "undecided"


def at_least(goal: float, low: float, high: float) -> str:
    """`met` where the whole interval is at the goal or above, `missed` where it is below, else `undecided`."""
    return at_most(-goal, -high, -low)
