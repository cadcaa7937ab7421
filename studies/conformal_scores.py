"""Conformal scores of classes, and the prediction sets that each score makes over random splits.

The scores are LAC, APS, RAPS, the log-margin, and the temperature at which a class enters the support of a sparse map.
A large score means that a class fits badly.
"""

from collections.abc import Callable
from itertools import pairwise, product
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from scipy.stats import betabinom
from torch import Tensor
from torch.nn.functional import cross_entropy

import sharmix
from sharmix.conformal import support_scores
from studies.logits import LabelledLogits
from studies.study import Settings

Array = np.ndarray[Any, np.dtype[Any]]
Candidate = tuple[dict[str, float], Callable[[Array], Tensor]]  # parameters; gives rows their scores, [rows, classes]

LAC, LAC_T, LAC_OWN, MARGIN = "LAC", "LAC, fitted temperature", "LAC of its own output", "log-margin"
APS, RAPS = "APS", "RAPS, chosen"
OWN, ALPHA, ORDERS = "support of its own map", "support, q = r chosen", "support, (q, r) chosen"
NAMES = [LAC, LAC_T, LAC_OWN, APS, RAPS, MARGIN, OWN, ALPHA, ORDERS]  # others are named by their fixed orders


def candidates(
    examples: LabelledLogits, temperature: float, dither: Tensor, settings: Settings
) -> dict[str, list[Candidate]]:
    """The scores of each contender, LAC first. A contender with parameters has one score for each choice of them.

    Args:
        examples: logits, labels, and the map with which the network was trained.
        temperature: of the probabilities in APS, RAPS and one LAC.
        dither: uniform random numbers that randomise APS and RAPS, [n, 1].
        settings: the settings of the study.
    """
    logits, _, activation = examples

    def support(q: float, r: float) -> Candidate:
        return {"q": q, "r": r}, lambda rows: support_scores(logits[rows], q=q, r=r)

    def raps(penalty: float, rank: int) -> Candidate:
        parameters = {"penalty": penalty, "rank": rank}
        return parameters, lambda rows: raps_scores(
            (logits[rows] / temperature).softmax(-1), dither[rows], **parameters
        )

    found: dict[str, list[Candidate]] = {
        LAC: [({}, lambda rows: -logits[rows].log_softmax(-1))],
        LAC_T: [({}, lambda rows: -(logits[rows] / temperature).log_softmax(-1))],
        APS: [raps(penalty=0, rank=0)],
        MARGIN: [({}, lambda rows: logits[rows].amax(-1, keepdim=True) - logits[rows])],
    }
    found |= {f"support ({q:g}, {r:g})": [support(q, r)] for q, r in settings["support"]["fixed"]}
    if not isinstance(activation, sharmix.Softmax):
        q, r, _ = activation.orders()
        found |= {OWN: [support(q, r)], LAC_OWN: [({}, lambda rows: -activation(logits[rows]))]}
    alphas, orders = settings["support"]["alphas"], settings["support"]["orders"]
    equal = [support(alpha, alpha) for alpha in alphas]
    return found | {
        RAPS: [raps(*one) for one in product(settings["raps"]["penalties"], settings["raps"]["ranks"])],
        ALPHA: equal,
        ORDERS: equal + [support(q, r) for q, r in product(alphas, orders) if r >= 2 - 1 / q],
    }


def raps_scores(p: Tensor, dither: Tensor, penalty: float, rank: int) -> Tensor:
    """Randomised RAPS of probabilities [n, classes]. With penalty 0 it is APS."""
    ordered, classes = p.sort(-1, descending=True)
    scores = ordered.cumsum(-1) - ordered + dither * ordered
    scores = scores + penalty * (torch.arange(1, ordered.shape[-1] + 1) - rank).clamp_min(0)
    return torch.empty_like(scores).scatter(-1, classes, scores)


def fitted_temperature(logits: Tensor, labels: Tensor) -> float:
    """The temperature with the least log loss, over examples whose label has a positive probability."""
    kept = logits.gather(-1, labels[:, None]).squeeze(-1).isfinite()

    def log_loss(log_temperature: float) -> float:
        return float(cross_entropy(logits[kept] / np.exp(log_temperature), labels[kept]))

    return float(np.exp(minimize_scalar(log_loss, bounds=(-4, 4), method="bounded").x))


class ConformalSplits:
    """The prediction sets of one score in every split.

    Args:
        scores: [n, classes].
        labels: [n].
        level: the coverage asked for.
        halves: permutations of the n examples, [splits, n]. The first half calibrates, the second half tests.

    Attributes:
        sizes: number of classes in the set of each test example, [splits, test examples].
        covered: whether the set holds the label, [splits, test examples].
    """

    def __init__(self, scores: Tensor, labels: Tensor, level: float, halves: Array) -> None:
        own = scores.gather(-1, labels[:, None]).squeeze(-1).numpy()
        self.level, self.calibrating = level, len(own) // 2
        calibration, test = np.split(halves, [self.calibrating], axis=1)
        self.rank = int(np.ceil((self.calibrating + 1) * level - 1e-9))
        thresholds = np.full(len(halves), np.inf)
        if self.rank <= self.calibrating:
            thresholds = np.partition(own[calibration], self.rank - 1)[:, self.rank - 1]
        self.sizes = _set_sizes(scores.numpy(), thresholds, test)
        self.covered = own[test] <= thresholds[:, None]

    @property
    def size(self) -> Array:
        """The mean size in each split."""
        return self.sizes.mean(1)

    def means(self, settings: Settings) -> dict[str, float]:
        """The mean of each metric over all splits."""
        tested, covered = self.sizes.shape[1], self.covered.sum(1)
        beyond = self.calibrating + 1 - self.rank
        low, high = betabinom(tested, self.rank, beyond).interval(settings["band"])
        return {
            "coverage": covered.mean() / tested,
            "expected coverage": self.rank / (self.calibrating + 1),
            "inside band": ((covered >= low) & (covered <= high)).mean(),
            "below band": (covered < low).mean(),
            "size": self.size.mean(),
            "singletons": (self.sizes == 1).mean(1).mean(),
            "violation": self.violations(settings["strata"], settings["least_stratum"]).mean(),
        }

    def violations(self, strata: list[int], least: int) -> Array:
        """The largest |coverage − level| of the strata by size in each split (Angelopoulos et al., 2021).

        Args:
            strata: the largest size in each stratum; above the last is one more.
            least: number of test examples, below which a stratum does not count.
        """
        gaps = []
        for low, high in pairwise([-1, *strata, np.inf]):
            inside = (self.sizes > low) & (self.sizes <= high)
            counts = inside.sum(1)
            coverage = (self.covered & inside).sum(1) / np.maximum(counts, 1)
            gaps.append(np.where(counts >= least, np.abs(coverage - self.level), 0))
        return np.max(gaps, axis=0)


def _set_sizes(scores: Array, thresholds: Array, test: Array) -> Array:
    """The number of classes with a score up to the split's threshold, [splits, test examples]."""
    examples, splits, order = len(scores), len(thresholds), thresholds.argsort()
    joins = np.searchsorted(thresholds[order], scores)  # the number of thresholds that leave a class out
    cells = joins + (splits + 1) * np.arange(examples)[:, None]
    sizes = np.bincount(cells.ravel(), minlength=examples * (splits + 1)).reshape(examples, -1).cumsum(1)
    return sizes[test, order.argsort()[:, None]]
