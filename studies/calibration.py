"""Calibration after training: temperature, entmax, SharMiX and vector scaling.

For each split of the labelled examples, every scaling is fitted to the calibration part, by the Brier score and by the
log loss. The rest of the examples gives the scores.
"""

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy.optimize import minimize
from sklearn.metrics import brier_score_loss, log_loss
from sklearn.model_selection import train_test_split
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot
from torchmetrics.functional.classification import multiclass_calibration_error

from sharmix.integrations.sklearn import SharMiXScaling
from studies.comparison import compare, table_of_changes, table_of_means
from studies.logits import finite, logits_of, seeds_of, sources
from studies.study import Finding, Report, Row, Settings, Task, rows_of

BELOW_ONE = 1 - torch.finfo(torch.float32).eps / 2  # the largest float32 below 1


def tasks(settings: Settings, data: Path | None) -> list[Task]:
    return [source | {"split": split} for source in sources(settings) for split in range(settings["splits"])]


def measure(task: Task, settings: Settings, data: Path | None) -> list[Row]:
    share, split, seeds = settings["calibration_share"], task["split"], seeds_of(task, settings)
    logits, labels, activation = logits_of(task, seeds[split % len(seeds)], settings, data)
    logits = finite(logits)
    calibration, test = train_test_split(np.arange(len(labels)), train_size=share, random_state=split)
    z, y = logits[calibration], labels[calibration]

    def rows(contender: str, loss: str, probabilities: Tensor, **fitted: float) -> list[Row]:
        values = calibration_scores(probabilities, labels[test], settings["bins"]) | fitted
        return rows_of(values, contender=contender, fitted_by=loss)

    found = []
    for loss in settings["losses"]:
        found += rows("none", loss, activation(logits[test]))
        for name, held in settings["scalings"].items():
            scaling = SharMiXScaling(**held, loss=loss).fit(z.numpy(), y.numpy())
            fitted = {key: getattr(scaling, f"{key}_") for key in ("temperature", "q", "r")}
            found += rows(name, loss, torch.from_numpy(scaling.transform(logits[test].numpy())), **fitted)
        found += rows("vector", loss, vector_scaling(z, y, loss)(logits[test]))
    return found


def vector_scaling(logits: Tensor, labels: Tensor, loss: str) -> Callable[[Tensor], Tensor]:
    """The probabilities softmax(w ∘ z + b) with a weight and a bias for each class that minimise a proper score.

    Args:
        logits: z, float64 [n, classes].
        labels: class indices, [n].
        loss: `brier` or `log`.

    Source: Guo, Pleiss, Sun and Weinberger (2017), On Calibration of Modern Neural Networks.
    """
    classes = logits.shape[-1]
    wanted = one_hot(labels, classes)

    def score(parameters: np.ndarray, kind: str) -> tuple[float, np.ndarray]:
        weight, bias = given = torch.tensor(parameters).reshape(2, classes).requires_grad_()
        z = weight * logits + bias
        value = cross_entropy(z, labels) if kind == "log" else (z.softmax(-1) - wanted).square().sum(-1).mean()
        [gradient] = torch.autograd.grad(value, given)
        return value.item(), gradient.numpy().ravel()

    found = np.repeat([1.0, 0.0], classes)
    for kind in dict.fromkeys(("log", loss)):  # convex, and its minimum is a good start for Brier's
        found = minimize(score, found, kind, jac=True, method="L-BFGS-B").x
    weight, bias = torch.tensor(found).reshape(2, classes)
    return lambda z: (weight * z + bias).softmax(-1)


def calibration_scores(probabilities: Tensor, labels: Tensor, bins: int) -> dict[str, float]:
    """Scores of probabilities [n, classes] against class indices [n], each a mean over the examples.

    `brier` is the mean of Σ (pᵢ − yᵢ)², and `nll` that of −log p_y with p_y at least the machine epsilon of float64, as
    scikit-learn has it. `zero_labels` is the share of examples with p_y = 0, `ece` the expected calibration error of
    the largest probability in `bins` of equal width, `aurc` the area under the risk–coverage curve, and `support` the
    number of classes with p > 0.
    """
    probabilities = probabilities.clamp(0, 1)  # rounding can leave 1 + 2e-16, which scikit-learn refuses
    p, y, classes = probabilities.numpy(), labels.numpy(), range(probabilities.shape[-1])
    confidence, predicted = probabilities.max(-1)
    wrong = predicted != labels
    below_one = probabilities.float().clamp_max(BELOW_ONE)  # torchmetrics would put exactly 1 into a bin of its own
    return {
        "brier": float(brier_score_loss(y, p, labels=classes, scale_by_half=False)),
        "nll": float(log_loss(y, p, labels=classes)),
        "zero_labels": float((p[np.arange(len(y)), y] == 0).mean()),
        "ece": multiclass_calibration_error(below_one, labels, len(classes), bins).item(),
        "aurc": risk_coverage_area(confidence.numpy(), wrong.numpy()),
        "accuracy": 1 - wrong.double().mean().item(),
        "support": (probabilities > 0).sum(-1).double().mean().item(),
    }


def risk_coverage_area(confidence: np.ndarray, wrong: np.ndarray) -> float:
    """The mean error rate of the k most confident predictions, over k = 1, …, n.

    Predictions with equal confidence have no order. The result is the expectation over all their orders.

    Args:
        confidence: of each prediction, [n].
        wrong: whether it is wrong, [n].

    Source: Geifman, Uziel and El-Yaniv (2019), Bias-Reduced Uncertainty Estimation for Deep Neural Classifiers.
    """
    _, group, sizes = np.unique(-confidence, return_inverse=True, return_counts=True)
    rates = np.bincount(group, weights=wrong) / sizes  # of the predictions with equal confidence
    errors = np.repeat(rates, sizes).cumsum()
    return float((errors / np.arange(1, len(wrong) + 1)).mean())


def report(records: pd.DataFrame, settings: Settings, shown: Settings) -> Report:
    pairs, names, tables = shown["compared"], shown["names"], {}
    for loss in settings["losses"]:
        own, fit = records[records["fitted_by"] == loss], f"Fitted by the {names[loss]}"
        of_sets = own.groupby(["contender", "metric", "data_set"], sort=False)["value"].mean().reset_index()
        means = table_of_means(of_sets).rename(columns=names).reset_index()
        tables[f"{fit}: means over {own['data_set'].nunique()} data sets"] = means
        changes = table_of_changes(own, pairs, shown["scores"], "data_set", relative=True)
        tables[f"{fit}: change of each score, with its interval over data sets"] = changes.rename(columns=names)
        for metric in shown["scores_of_networks"][loss]:
            title = f"{fit}: {names[metric]} of each network, and its change with the interval over splits"
            tables[title] = _by_network(own[own["metric"] == metric], metric, pairs)
    return Report(tables, _findings(records, settings, shown), shown["notes"])


def _by_network(records: pd.DataFrame, metric: str, pairs: list[list[str]]) -> pd.DataFrame:
    place = ["data_set", "network"]
    table = records.pivot_table("value", place, "contender", sort=False).map("{:.4f}".format)
    networks = [own for _, own in records.groupby(place, sort=False)]
    for one, other in pairs:
        table[f"{one} − {other}"] = [str(compare(own, metric, one, other, "split")) for own in networks]
    return table.reset_index(names=["data set", "network"])


def _findings(records: pd.DataFrame, settings: Settings, shown: Settings) -> list[Finding]:
    findings, asked = [], shown["found"]
    for metric, pair in product(asked["scores"], asked["pairs"]):
        found = compare(records[records["fitted_by"] == asked["loss"]], metric, *pair, "data_set", relative=True)
        contender, opponent = (f"{name} scaling" for name in pair)
        difference, verdict = f"{shown['names'][metric]} {found}", found.verdict("lower")
        numbers = found.units, settings["splits"]
        findings.append(Finding("calibration", contender, opponent, verdict, difference, *numbers))
    return findings
