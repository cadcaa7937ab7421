"""Two contenders on the same data sets or seeds: the mean difference, its interval, and the verdict."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from typing import Literal

import numpy as np
import pandas as pd

from reporting.declaration import Bootstrap
from reporting.statistics import bootstrap_interval

POINTS = 100  # per cent in 1


@dataclass(frozen=True)
class Comparison:
    """A mean difference between two contenders, paired by unit.

    Attributes:
        difference: the mean over units of contender − opponent, divided by the opponent's value where it is relative.
        low: lower end of its percentile bootstrap interval over units; NaN with fewer than two units.
        high: upper end of it.
        units: number of units, such as data sets.
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
    bootstrap: Bootstrap,
    relative: bool = False,
) -> Comparison:
    """Compare two contenders by a metric, each unit's rows averaged before units are paired.

    Args:
        records: rows with `contender`, `metric`, `value` and the columns of the unit.
        metric: the metric compared.
        contender: what may be better.
        opponent: what it is compared with.
        unit: the column, or columns, that tell apart what is drawn anew by the bootstrap, such as `data_set`.
        bootstrap: how the interval is drawn.
        relative: whether to divide each difference by the opponent's value.

    Raises:
        ValueError: one of the two has no rows of the metric, they share no unit, or the difference of one is NaN.
    """
    rows = records[records["metric"] == metric]
    columns = [unit] if isinstance(unit, str) else [*unit]
    means = rows.groupby([*columns, "contender"])["value"].mean().unstack("contender")
    if missing := {contender, opponent} - {*means.columns}:
        raise ValueError(f"no records of {metric} by {', '.join(sorted(missing))}; there are {', '.join(means)}")
    pairs = means[[contender, opponent]].dropna()
    if pairs.empty:
        raise ValueError(f"{contender} and {opponent} share no {', '.join(columns)} by {metric}")
    differences = pairs[contender] - pairs[opponent]
    if relative:
        differences = differences / pairs[opponent]
    if (undefined := differences.isna()).any():
        raise ValueError(
            f"{contender} − {opponent} is not a number by {metric} for {', '.join(map(str, pairs.index[undefined]))}; "
            f"the values are {pairs[undefined].to_numpy().tolist()}"
        )
    low, high = bootstrap_interval(differences.to_numpy(), np.mean, bootstrap)
    return Comparison(float(differences.mean()), low, high, len(differences), relative)
