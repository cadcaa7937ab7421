"""Conformal scores of classes, and the prediction sets that each score makes over random splits.

The scores are LAC, APS, RAPS, the log-margin, and the temperature at which a class enters the support of a sparse map.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from scipy.stats import betabinom
from torch import Tensor

import sharmix
from sharmix.conformal import support_scores
from studies.logits import LabelledLogits
from studies.study import Settings

Array = np.ndarray[Any, np.dtype[Any]]
LAC, LAC_T, LAC_OWN, MARGIN = "LAC", "LAC, fitted temperature", "LAC of its own output", "log-margin"
APS, RAPS = "APS", "RAPS, chosen"
OWN, ALPHA, ORDERS = "support of its own map", "support, q = r chosen", "support, (q, r) chosen"


@dataclass
class Contenders:
    """The scores of all contenders, [n, classes]. A large score means that a class fits badly.

    Attributes:
        examples: logits, labels, and the map with which the network was trained.
        selection: the examples on which parameters are chosen.
        settings: the settings of the study.
        random: randomises APS and RAPS, and splits the selection.
    """

    examples: LabelledLogits
    selection: Array
    settings: Settings
    random: np.random.Generator

    def __post_init__(self) -> None:
        self.logits, labels, self.activation = self.examples
        self.labels = labels[self.selection]
        self.temperature = _fitted_temperature(self.logits[self.selection], self.labels)
        self.dither = torch.from_numpy(self.random.random((len(self.logits), 1)))
        count = len(self.selection)
        self.halves = np.stack([self.random.permutation(count) for _ in range(self.settings["selection_splits"])])
        self.fixed = dict(self._fixed())
        self.candidates = {
            name: [(candidate, score(self.selection, **candidate)) for candidate in candidates]
            for name, (score, candidates) in self._choices().items()
        }

    def all(self, level: float) -> Iterator[tuple[str, Tensor, dict[str, float]]]:
        """Each contender's name, scores and chosen parameters, LAC first. The parameters have the least mean size."""
        for name, scores in self.fixed.items():
            yield name, scores, {}
        for name, (score, _) in self._choices().items():
            chosen, _ = min(self.candidates[name], key=lambda candidate: self._mean_size(candidate[1], level))
            yield name, score(slice(None), **chosen), {f"chosen {key}": value for key, value in chosen.items()}

    def _fixed(self) -> Iterator[tuple[str, Tensor]]:
        yield LAC, -self.logits.log_softmax(-1)
        yield LAC_T, -(self.logits / self.temperature).log_softmax(-1)
        yield APS, self._cumulative(slice(None), 0, 0)
        yield MARGIN, self.logits.amax(-1, keepdim=True) - self.logits
        for q, r in self.settings["support"]["fixed"]:
            yield f"support ({q:g}, {r:g})", self._support(slice(None), q, r)
        if not isinstance(self.activation, sharmix.Softmax):
            q, r, _ = self.activation.orders()
            yield OWN, self._support(slice(None), q, r)
            yield LAC_OWN, -self.activation(self.logits)

    def _choices(self) -> dict[str, tuple[Callable[..., Tensor], list[dict[str, float]]]]:
        """For each contender with parameters to choose, the function of its scores and the candidates."""
        raps, support = self.settings["raps"], self.settings["support"]
        penalties = [{"penalty": one, "rank": rank} for one, rank in product(raps["penalties"], raps["ranks"])]
        alphas = [{"q": alpha, "r": alpha} for alpha in support["alphas"]]
        orders = [{"q": q, "r": r} for q, r in product(support["alphas"], support["orders"]) if r >= 2 - 1 / q]
        choices = {ALPHA: alphas, ORDERS: alphas + orders}
        return {RAPS: (self._cumulative, penalties)} | {name: (self._support, one) for name, one in choices.items()}

    def _support(self, rows: Array | slice, q: float, r: float) -> Tensor:
        return support_scores(self.logits[rows], q=q, r=r)

    def _cumulative(self, rows: Array | slice, penalty: float, rank: int) -> Tensor:
        """Randomised RAPS of the probabilities at the fitted temperature. With penalty 0 it is APS."""
        ordered, classes = (self.logits[rows] / self.temperature).softmax(-1).sort(-1, descending=True)
        scores = ordered.cumsum(-1) - ordered + self.dither[rows] * ordered
        scores = scores + penalty * (torch.arange(1, ordered.shape[-1] + 1) - rank).clamp_min(0)
        return torch.empty_like(scores).scatter(-1, classes, scores)

    def _mean_size(self, scores: Tensor, level: float) -> float:
        return float(ConformalSplits(scores, self.labels, level, self.halves, self.settings).size.mean())


def _fitted_temperature(logits: Tensor, labels: Tensor) -> float:
    """The temperature with the least log loss, over examples whose label has a positive probability."""
    kept = logits.gather(-1, labels[:, None]).squeeze(-1).isfinite()

    def log_loss(log_temperature: float) -> float:
        return float(torch.nn.functional.cross_entropy(logits[kept] / np.exp(log_temperature), labels[kept]))

    return float(np.exp(minimize_scalar(log_loss, bounds=(-4, 4), method="bounded").x))


class ConformalSplits:
    """Coverage and size of the prediction sets of one score in every split.

    Args:
        scores: [n, classes]. A large score means that a class fits badly.
        labels: [n].
        level: the coverage asked for.
        halves: permutations of the n examples, [splits, n]. The first half calibrates, the second half tests.
        settings: the settings of the study.

    Attributes: arrays [splits].
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
        """The mean of each metric over all splits."""
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

    Only the few scores between the smallest and the largest threshold are counted again for each split.
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
    """The largest |coverage − level| of a split's strata by size. Strata below `least` examples do not count."""
    strata = len(edges) + 1
    stratum = np.searchsorted(edges, np.arange(sizes.max() + 1))[sizes]
    cells = (stratum + strata * np.arange(len(sizes))[:, None]).ravel()
    counts, inside = (
        np.bincount(cells, weights, strata * len(sizes)).reshape(-1, strata) for weights in (None, covered.ravel())
    )
    return np.where(counts >= least, np.abs(inside / np.maximum(counts, 1) - level), 0).max(1)
