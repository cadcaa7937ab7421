"""Prediction sets of one score over random splits: coverage, size, and how coverage differs between sizes."""

from typing import Any

import numpy as np
from scipy.stats import betabinom
from torch import Tensor

from studies.study import Settings

Array = np.ndarray[Any, np.dtype[Any]]


class ConformalSplits:
    """What the sets of one score do in every split, each attribute an array [splits].

    Args:
        scores: [n, classes]; the larger, the less a class fits.
        labels: [n].
        level: the coverage asked for.
        halves: permutations of n, [splits, n]; the first half calibrates.
        settings: of the study.

    Attributes:
        covered: number of test examples whose set holds their label.
        size: mean number of classes in a set.
        singletons: share of sets with one class.
        violation: the largest |coverage − level| of the strata by size (Angelopoulos et al., 2021).
    """

    def __init__(self, scores: Tensor, labels: Tensor, level: float, halves: Array, settings: Settings) -> None:
        own = scores.gather(-1, labels[:, None]).squeeze(-1).numpy()
        count = len(own) // 2
        calibration, test = halves[:, :count], halves[:, count:]
        rank = int(np.ceil((count + 1) * level - 1e-9))
        thresholds = np.full(len(halves), np.inf)
        if rank <= count:
            thresholds = np.partition(own[calibration], rank - 1)[:, rank - 1]
        sizes = _set_sizes(scores.numpy(), thresholds, test)
        covered = own[test] <= thresholds[:, None]
        self.tested = test.shape[1]
        self.expected = rank / (count + 1)
        self.band = betabinom(self.tested, rank, count + 1 - rank).interval(settings["band"])
        self.covered, self.size, self.singletons = covered.sum(1), sizes.mean(1), (sizes == 1).mean(1)
        self.violation = _violation(sizes, covered, level, settings["strata"], settings["least_stratum"])

    def means(self) -> dict[str, float]:
        """By metric, over all splits."""
        low, high = self.band
        return {
            "coverage": self.covered.mean() / self.tested,
            "expected coverage": self.expected,
            "inside band": ((self.covered >= low) & (self.covered <= high)).mean(),
            "below band": (self.covered < low).mean(),
            "size": self.size.mean(),
            "singletons": self.singletons.mean(),
            "violation": self.violation.mean(),
        }


def _set_sizes(scores: Array, thresholds: Array, test: Array) -> Array:
    """The number of classes with a score up to the split's threshold, [splits, test examples].

    Only the few scores between the smallest and the largest threshold are counted anew for each split.
    """
    low, high = thresholds.min(), thresholds.max()
    always = (scores <= low).sum(-1)
    rows, classes = np.nonzero((scores > low) & (scores <= high))
    between = scores[rows, classes]
    order = between.argsort()
    rows, joined = rows[order], np.searchsorted(between[order], thresholds, side="right")
    each = (
        (always + np.bincount(rows[:number], minlength=len(always)))[one]
        for number, one in zip(joined, test, strict=True)
    )
    return np.stack(list(each))


def _violation(sizes: Array, covered: Array, level: float, edges: list[int], least: int) -> Array:
    """The largest |coverage − level| of a split's strata by size, of those with at least so many examples."""
    strata = len(edges) + 1
    stratum = np.searchsorted(edges, np.arange(sizes.max() + 1))[sizes]
    cells = (stratum + strata * np.arange(len(sizes))[:, None]).ravel()
    counts, inside = (
        np.bincount(cells, weights, strata * len(sizes)).reshape(-1, strata) for weights in (None, covered.ravel())
    )
    told = counts >= least
    return np.where(told, np.abs(inside / np.maximum(counts, 1) - level), 0).max(1)
