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
from sklearn.model_selection import train_test_split
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from sharmix.integrations.sklearn import SharMiXScaling
from studies.calibration_scores import calibration_scores
from studies.comparison import compare
from studies.logits import PUBLIC, LabelledLogits, network_logits, probability_set
from studies.study import Finding, Report, Row, Settings, Task

LOSSES = {"brier": "Brier score", "log": "log loss"}  # the names of the losses that a fit minimises
SCORES = {  # the names of the scores that are compared; for each of them less is better
    "brier": "Brier score",
    "ece": "expected calibration error",
    "nll": "negative log likelihood",
    "aurc": "area under the risk–coverage curve",
}


def tasks(settings: Settings, data: Path | None) -> list[Task]:
    sources = [(name, PUBLIC) for name in settings["probability_sets"]]
    sources += [(data_set, network) for data_set, networks in settings["networks"].items() for network in networks]
    return [
        {"data_set": data_set, "network": network, "split": split}
        for data_set, network in sources
        for split in range(settings["splits"])
    ]


def measure(task: Task, settings: Settings, data: Path | None) -> list[Row]:
    logits, labels, activation = _examples(task, settings, data)
    share, split = settings["calibration_share"], task["split"]
    calibration, test = train_test_split(np.arange(len(labels)), train_size=share, random_state=split)
    z, y = logits[calibration], labels[calibration]

    def rows(contender: str, loss: str, probabilities: Tensor, fitted: dict[str, float]) -> list[Row]:
        values = calibration_scores(probabilities, labels[test], settings["bins"]) | fitted
        same = {"contender": contender, "fitted_by": loss}
        return [{**same, "metric": name, "value": value} for name, value in values.items()]

    found = []
    for loss in settings["losses"]:
        found += rows("none", loss, activation(logits[test]), {})
        for name, held in settings["scalings"].items():
            scaling = SharMiXScaling(**held, loss=loss).fit(z.numpy(), y.numpy())
            fitted = {key: getattr(scaling, f"{key}_") for key in ("temperature", "q", "r")}
            found += rows(name, loss, torch.from_numpy(scaling.transform(logits[test].numpy())), fitted)
        found += rows("vector", loss, vector_scaling(z, y, loss)(logits[test]), {})
    return found


def _examples(task: Task, settings: Settings, data: Path | None) -> LabelledLogits:
    if task["network"] == PUBLIC:
        return probability_set(task["data_set"], data)
    network = settings["networks"][task["data_set"]][task["network"]]
    seed = network["seeds"][task["split"] % len(network["seeds"])]
    return network_logits(network["overrides"], seed, data)


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
    for kind in dict.fromkeys(("log", loss)):  # the log loss is convex, and leads the Brier score to a good minimum
        found = minimize(score, found, kind, jac=True, method="L-BFGS-B").x
    weight, bias = torch.tensor(found).reshape(2, classes)
    return lambda z: (weight * z + bias).softmax(-1)


def report(records: pd.DataFrame, settings: Settings, shown: Settings) -> Report:
    confidence = shown["confidence"]
    pairs = shown["compared"]
    tables, findings = {}, []
    for loss in settings["losses"]:
        own, fit = records[records["fitted_by"] == loss], f"Fitted by the {LOSSES[loss]}"
        tables[f"{fit}: means over {own['data_set'].nunique()} data sets"] = _means(own)
        changes = _changes(own, pairs, shown["scores"], confidence)
        tables[f"{fit}: change of each score, with its interval over data sets"] = changes
        for metric in shown["scores_of_networks"][loss]:
            by_network = _by_network(own, metric, pairs, confidence)
            tables[f"{fit}: {SCORES[metric]} of each network, and its change with the interval over splits"] = (
                by_network
            )
    wanted = shown["found"]
    fitted = records[records["fitted_by"] == wanted["loss"]]
    for metric, (contender, opponent) in product(wanted["scores"], wanted["pairs"]):
        found = compare(fitted, metric, contender, opponent, "data_set", confidence, relative=True)
        findings.append(
            Finding(
                "calibration",
                f"{contender} scaling",
                f"{opponent} scaling",
                found.verdict("lower"),
                f"{SCORES[metric]} {found}",
                found.units,
                settings["splits"],
            )
        )
    return Report(tables, findings, shown["notes"])


def _means(records: pd.DataFrame) -> pd.DataFrame:
    """The mean of each metric over data sets, after the mean over the networks and splits of each."""
    of_sets = records.groupby(["contender", "metric", "data_set"], sort=False)["value"].mean()
    table = of_sets.groupby(["contender", "metric"], sort=False).mean().unstack("metric")
    return table.map(lambda value: "" if np.isnan(value) else f"{value:.4f}").rename(columns=SCORES).reset_index()


def _changes(records: pd.DataFrame, pairs: list[list[str]], metrics: list[str], confidence: float) -> pd.DataFrame:
    def change(pair: list[str], metric: str) -> str:
        return str(compare(records, metric, *pair, "data_set", confidence, relative=True))

    return pd.DataFrame(
        {"change": " against ".join(pair)} | {SCORES.get(metric, metric): change(pair, metric) for metric in metrics}
        for pair in pairs
    )


def _by_network(records: pd.DataFrame, metric: str, pairs: list[list[str]], confidence: float) -> pd.DataFrame:
    def line(place: tuple[str, str], own: pd.DataFrame) -> Row:
        means = own[own["metric"] == metric].groupby("contender", sort=False)["value"].mean()
        changes = {
            f"{one} − {other}": str(compare(own, metric, one, other, "split", confidence)) for one, other in pairs
        }
        return {"data set": place[0], "network": place[1], **{k: f"{v:.4f}" for k, v in means.items()}, **changes}

    return pd.DataFrame(line(place, own) for place, own in records.groupby(["data_set", "network"], sort=False))
