"""The bootstrap interval of a median, by which goals of time are judged."""

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
