"""Compares two contenders on the same data sets or seeds: the mean difference, its interval, and the verdict."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from typing import Literal

import numpy as np
import pandas as pd

from reporting.records.statistics import POINTS, estimate

CONFIDENCE = 0.95  # of the intervals of all studies


@dataclass(frozen=True)
class Comparison:
    """A mean difference between two contenders, paired by unit."""

    difference: float  # the mean over units of contender − opponent
    low: float  # the ends of its interval over units, by Student's t; NaN with fewer than two units
    high: float
    units: int  # the number of units, such as data sets
    relative: bool  # whether each difference is divided by the opponent's value

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
    records: pd.DataFrame, metric: str, contender: str, opponent: str, unit: str, relative: bool = False
) -> Comparison:
    """Compare a contender with an opponent by a metric. The rows of each unit are averaged before units are paired.

    Args:
        records: rows with `contender`, `metric`, `value` and the column of the unit.
        unit: the column of the units over which the interval is taken, such as `data_set`.
        relative: whether to divide each difference by the opponent's value.

    Raises:
        ValueError: the two share no unit, or a value or a difference is not finite.
    """
    rows = records[(records["metric"] == metric) & records["contender"].isin([contender, opponent])]
    means = rows.groupby([unit, "contender"])["value"].mean().unstack("contender")
    pairs = means.reindex(columns=[contender, opponent]).dropna()
    differences = pairs[contender] - pairs[opponent]
    if relative:
        differences = differences / pairs[opponent]
    if pairs.empty or not np.isfinite([*rows["value"], *differences]).all():
        raise ValueError(
            f"{contender} and {opponent} have no {metric} for the same {unit}, or a value or difference is not finite:"
            f"\n{means}"
        )
    found = estimate(differences, CONFIDENCE)
    return Comparison(found.mean, found.low, found.high, found.seeds, relative)


def table_of_changes(
    records: pd.DataFrame, pairs: Sequence[tuple[str, str]], metrics: Sequence[str], unit: str, relative: bool = False
) -> pd.DataFrame:
    """The comparison of each pair of a contender and an opponent, by each metric."""
    return pd.DataFrame(
        {"change": f"{one} against {other}"}
        | {metric: str(compare(records, metric, one, other, unit, relative)) for metric in metrics}
        for one, other in pairs
    )


def table_of_means(records: pd.DataFrame) -> pd.DataFrame:
    """The mean of each metric for each contender, as text; empty where a contender does not have the metric."""
    means = records.groupby(["contender", "metric"], sort=False)["value"].mean().unstack("metric")
    return means.map(lambda value: "" if np.isnan(value) else f"{value:.4f}")
