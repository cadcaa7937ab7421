"""Compares two contenders on the same data sets or seeds: the mean difference, its interval, and the verdict."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from typing import Literal

import numpy as np
import pandas as pd

from reporting.statistics import estimate

POINTS = 100  # per cent in 1


@dataclass(frozen=True)
class Comparison:
    """A mean difference between two contenders, paired by unit.

    Attributes:
        difference: the mean over units of contender − opponent. A relative one is divided by the opponent's value.
        low: the lower end of its interval over units, by Student's t; NaN with fewer than two units.
        high: the upper end of this interval.
        units: the number of units, such as data sets.
        relative: whether differences are shares of the opponent's value.
    """

    difference: float
    low: float
    high: float
    units: int
    relative: bool

    def __str__(self) -> str:
        mean, low, high = (self._number(value) for value in (self.difference, self.low, self.high))
        return mean if isnan(self.low) else f"{mean} [{low}, {high}]"

    def _number(self, value: float) -> str:
        text = f"{POINTS * value:+.1f} %" if self.relative else f"{value:+.4f}"
        return text.replace("-", "−")

    def verdict(self, better: Literal["lower", "higher"]) -> str:
        """`gain` where the whole interval is on the better side of 0, `loss` on the other, `no gain` around it."""
        if isnan(self.low):
            return "undecided"
        low, high = (self.low, self.high) if better == "higher" else (-self.high, -self.low)
        return "gain" if low > 0 else "loss" if high < 0 else "no gain"


def compare(
    records: pd.DataFrame,
    metric: str,
    contender: str,
    opponent: str,
    unit: str | Sequence[str],
    confidence: float,
    relative: bool = False,
) -> Comparison:
    """Compare two contenders by a metric. The rows of each unit are averaged before units are paired.

    Args:
        records: rows with `contender`, `metric`, `value` and the columns of the unit.
        metric: the metric compared.
        contender: the one that may be better.
        opponent: the one that it is compared with.
        unit: the column or columns of the units over which the interval is taken, such as `data_set`.
        confidence: the confidence of the interval, such as 0.95.
        relative: whether to divide each difference by the opponent's value.

    Raises:
        ValueError: the two share no unit, or a value or a difference is not finite.
    """
    rows = records[(records["metric"] == metric) & records["contender"].isin([contender, opponent])]
    columns = [unit] if isinstance(unit, str) else [*unit]
    means = rows.groupby([*columns, "contender"])["value"].mean().unstack("contender")
    pairs = means.reindex(columns=[contender, opponent]).dropna()
    differences = pairs[contender] - pairs[opponent]
    if relative:
        differences = differences / pairs[opponent]
    if pairs.empty or not np.isfinite([*rows["value"], *differences]).all():
        raise ValueError(
            f"{contender} and {opponent} have no {metric} for the same {', '.join(columns)}, or a value or difference "
            f"is not finite:\n{means}"
        )
    return Comparison(float(differences.mean()), *mean_interval(differences, confidence), len(differences), relative)


def mean_interval(values: pd.Series, confidence: float) -> tuple[float, float]:
    """Both ends of Student's t interval of the mean of independent values; NaN for fewer than two values."""
    found = estimate(values, confidence)
    return found.low, found.high
