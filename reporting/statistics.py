"""Means over seeds and their bootstrap intervals."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import nan

import numpy as np
import pandas as pd
from scipy import stats

from reporting.records import Record, RecordError

ORDERS = "orders"  # in place of a split: the learned (q, r), which belong to none
POINTS = 100  # percentage points in 1


@dataclass
class Bootstrap:
    """How an interval is drawn.

    Attributes:
        confidence: share of the bootstrap distribution inside the interval, between 0 and 1.
        resamples: number of resamples.
        seed: seed of the resampling.
    """

    confidence: float
    resamples: int
    seed: int


@dataclass(frozen=True)
class Estimate:
    """A quantity over seeds; what the seeds are too few for is NaN.

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

    Args:
        values: one value a seed.
        bootstrap: how the interval is drawn.

    Returns:
        The estimate; NaN mean without seeds, NaN deviation and interval with fewer than two.

    Source: B. Efron and R. Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13.
    """
    low = high = nan
    if len(values) > 1:
        interval = stats.bootstrap(
            (values.to_numpy(),),
            np.mean,
            confidence_level=bootstrap.confidence,
            n_resamples=bootstrap.resamples,
            method="percentile",
            rng=np.random.default_rng(bootstrap.seed),
        ).confidence_interval
        low, high = float(interval.low), float(interval.high)
    return Estimate(float(values.mean()), float(values.std()), len(values), low, high)


def metric_by_seed(runs: Mapping[int, Record], split: str, metric: str, epoch: int | None = None) -> pd.Series:
    """Values of a metric on a split, indexed by seed.

    Args:
        runs: record of each seed.
        split: "train", "dev", "test", or "orders", of which the learned orders are.
        metric: name of the metric in the records.
        epoch: the epoch after which it was measured; None for the one that each run reports: the one it has selected
            on dev, or else its last.

    Returns:
        One value for each seed whose run has reached the epoch.

    Raises:
        RecordError: where a run did not measure the metric.
    """
    values = {}
    for seed, record in runs.items():
        if (measured := _measured(record, split, epoch)) is None:
            continue
        if metric not in measured:
            raise RecordError(
                f"{record['experiment']}: the run run_id={record['run_id']} with seed={seed} did not measure "
                f"{metric!r} on {split}; it measured {', '.join(sorted(measured))}"
            )
        values[seed] = measured[metric]
    return pd.Series(values, dtype=float)


def last_epoch(record: Record) -> int:
    """The last epoch of a run."""
    return max(row["epoch"] for row in record["curves"])


def reported_epoch(record: Record) -> int:
    """The epoch that a run reports: the one it has selected on dev, or else its last."""
    epoch: int = record.get("epoch", last_epoch(record))
    return epoch


def _measured(record: Record, split: str, epoch: int | None) -> dict[str, float] | None:
    wanted = reported_epoch(record) if epoch is None else epoch
    prefix = "" if split == ORDERS else split
    for row in record["curves"]:
        if row["epoch"] == wanted:
            named = ((name.rpartition("/"), value) for name, value in row.items())
            return {name: value for (found, _, name), value in named if found == prefix}
    return None


def paired_difference(values: pd.Series, reference: pd.Series) -> pd.Series:
    """Difference `values − reference` for every seed that both have.

    Args:
        values: one value a seed, indexed by seed.
        reference: the same for what it is compared with.

    Returns:
        The differences, indexed by seed.
    """
    return (values - reference).dropna()
