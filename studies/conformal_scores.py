"""The scores that sets of classes are made by: LAC, APS, RAPS, the log-margin, and the supports of sparse maps."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

import sharmix
from sharmix.conformal import support_scores
from studies.conformal_splits import Array, ConformalSplits
from studies.logits import LabelledLogits
from studies.study import Settings

LAC, LAC_T, LAC_OWN, MARGIN = "LAC", "LAC, fitted temperature", "LAC of its own output", "log-margin"
APS, RAPS = "APS", "RAPS, chosen"
OWN, ALPHA, ORDERS = "support of its own map", "support, q = r chosen", "support, (q, r) chosen"


@dataclass
class Contenders:
    """The scores of all contenders, [n, classes]; the larger, the less a class fits.

    Attributes:
        examples: their logits, their labels, and the map that the network was trained under.
        selection: the examples that choose parameters.
        settings: of the study.
        random: draws what randomises APS and RAPS, and the splits of the selection.
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
        """Names and scores, LAC first, and what was chosen for this coverage: the least mean size."""
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
        """By contender, what computes its scores and the candidates of what is chosen."""
        raps, support = self.settings["raps"], self.settings["support"]
        penalties = [{"penalty": one, "rank": rank} for one, rank in product(raps["penalties"], raps["ranks"])]
        alphas = [{"q": alpha, "r": alpha} for alpha in support["alphas"]]
        orders = [{"q": q, "r": r} for q, r in product(support["alphas"], support["orders"]) if r >= 2 - 1 / q]
        choices = {ALPHA: alphas, ORDERS: alphas + orders}
        return {RAPS: (self._cumulative, penalties)} | {name: (self._support, one) for name, one in choices.items()}

    def _support(self, rows: Array | slice, q: float, r: float) -> Tensor:
        return support_scores(self.logits[rows], q=q, r=r)

    def _cumulative(self, rows: Array | slice, penalty: float, rank: int) -> Tensor:
        """RAPS, randomised, of probabilities at the fitted temperature; APS where the penalty is 0."""
        ordered, classes = (self.logits[rows] / self.temperature).softmax(-1).sort(-1, descending=True)
        scores = ordered.cumsum(-1) - ordered + self.dither[rows] * ordered
        scores = scores + penalty * (torch.arange(1, ordered.shape[-1] + 1) - rank).clamp_min(0)
        return torch.empty_like(scores).scatter(-1, classes, scores)

    def _mean_size(self, scores: Tensor, level: float) -> float:
        return float(ConformalSplits(scores, self.labels, level, self.halves, self.settings).size.mean())


def _fitted_temperature(logits: Tensor, labels: Tensor) -> float:
    """The temperature of least log loss; labels of probability 0 are left out."""
    kept = logits.gather(-1, labels[:, None]).squeeze(-1).isfinite()

    def log_loss(log_temperature: float) -> float:
        return float(torch.nn.functional.cross_entropy(logits[kept] / np.exp(log_temperature), labels[kept]))

    return float(np.exp(minimize_scalar(log_loss, bounds=(-4, 4), method="bounded").x))
