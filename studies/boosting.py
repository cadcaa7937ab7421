"""Boosted trees: LightGBM's own objective, softmax, entmax and SharMiX.

For each split of a table, every contender trains at every learning rate. The validation part chooses the rate, and the
test part gives the scores.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import torch
from sklearn.model_selection import train_test_split
from torch import Tensor

import sharmix
from sharmix.integrations.boosting import LightGBMMetric, Objective
from studies.comparison import compare
from studies.packaged_tables import Table, chosen_tables, read_table
from studies.study import Finding, Report, Row, Settings, Task

CALIBRATED = " + T"
METRICS = {"brier": ("brier", "accuracy", "support", "outside", "temperature"), "log_loss": ("log_loss", "outside")}


def tasks(settings: Settings, data: Path | None) -> list[Task]:
    return [
        {"data_set": name, **table.sizes, "split": split}
        for name, table in chosen_tables(settings["data_sets"]).items()
        for split in range(settings["splits"])
    ]


@dataclass(frozen=True)
class Examples:
    """A table, and the numbers of the rows in each part of a split."""

    table: Table
    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray

    @classmethod
    def of(cls, table: Table, split: int, settings: Settings) -> "Examples":
        def divided(rows: np.ndarray, size: int) -> Sequence[np.ndarray]:
            return train_test_split(rows, test_size=size, stratify=table.labels[rows], random_state=split)

        rows = np.arange(len(table.labels))
        if len(rows) > settings["most_rows"]:
            _, rows = divided(rows, settings["most_rows"])
        rest, test = divided(rows, round(settings["test_share"] * len(rows)))
        train, validation = divided(rest, round(settings["validation_share"] * len(rows)))
        return cls(table, train, validation, test)


@dataclass(frozen=True)
class Trained:
    """The raw scores of a model, [rows, classes], and the map that makes them probabilities."""

    activation: sharmix.Activation
    validation: Tensor
    test: Tensor


def measure(task: Task, settings: Settings, data: Path | None) -> list[Row]:
    examples = Examples.of(read_table(task["data_set"], settings["data_sets"]), task["split"], settings)
    trained = {
        name: [train(objective, rate, examples, settings) for rate in settings["learning_rates"]]
        for name, objective in settings["contenders"].items()
    }
    trained |= {name: [one for part in parts for one in trained[part]] for name, parts in settings["chosen"].items()}
    grid = settings["temperatures"]
    fitted = torch.from_numpy(np.geomspace(grid["least"], grid["largest"], grid["number"]))
    of_validation, of_test = (
        torch.from_numpy(examples.table.labels[rows]) for rows in (examples.validation, examples.test)
    )

    rows = []
    for (name, models), chosen_by, calibrated in product(trained.items(), METRICS, (False, True)):
        temperatures = fitted if calibrated else torch.ones(1, dtype=torch.float64)
        tried = []
        for model in models:
            p = model.activation(model.validation / temperatures[:, None, None])
            value, best = scores(p, of_validation, settings["clip"])[chosen_by].min(0)
            tried.append((value, temperatures[best], model))
        _, temperature, model = min(tried, key=lambda one: one[0])
        values = scores(model.activation(model.test / temperature), of_test, settings["clip"])
        values["temperature"] = temperature
        same = {"contender": name + CALIBRATED * calibrated, "chosen_by": chosen_by}
        rows += [{**same, "metric": metric, "value": float(values[metric])} for metric in METRICS[chosen_by]]
    return rows


def train(objective: Any, rate: float, examples: Examples, settings: Settings) -> Trained:
    """Train a model with an objective of the settings. The Brier score on the validation part stops the training."""
    x, y = examples.table.features, examples.table.labels
    classes = len(np.unique(y))
    parameters = settings["lightgbm"] | {"num_class": classes, "metric": "none", "learning_rate": rate}
    if isinstance(objective, str):
        activation, own, metric = sharmix.Softmax(), objective, brier_of_probabilities
    else:
        own = Objective(**objective)
        activation, metric = own.activation, LightGBMMetric(own, "brier")
        parameters["learning_rate"] *= (classes - 1) / classes  # LightGBM's own Hessian has the inverse as a factor
    data = lightgbm.Dataset(x[examples.train], y[examples.train])
    model = lightgbm.train(
        parameters | {"objective": own},
        data,
        settings["rounds"],
        [data.create_valid(x[examples.validation], y[examples.validation])],
        feval=metric,
        callbacks=[lightgbm.early_stopping(settings["patience"], verbose=False)],
    )
    raw = [torch.from_numpy(model.predict(x[rows], raw_score=True)) for rows in (examples.validation, examples.test)]
    return Trained(activation, *raw)


def brier_of_probabilities(probabilities: np.ndarray, data: lightgbm.Dataset) -> tuple[str, float, bool]:
    """The metric for LightGBM's own objective, whose predictions are probabilities."""
    wanted = np.eye(probabilities.shape[1])[data.get_label().astype(int)]
    return "brier", float(np.square(probabilities - wanted).sum(1).mean()), False


def scores(p: Tensor, labels: Tensor, clip: float) -> dict[str, Tensor]:
    """The mean scores [...] of probabilities [..., rows, classes].

    Args:
        p: probabilities.
        labels: class indices [rows].
        clip: the least probability in the log loss.
    """
    of_label = p.gather(-1, labels.expand(p.shape[:-1]).unsqueeze(-1)).squeeze(-1)
    return {
        "brier": (p.square().sum(-1) - 2 * of_label + 1).mean(-1),
        "log_loss": -of_label.clamp_min(clip).log().mean(-1),
        "accuracy": (p.argmax(-1) == labels).double().mean(-1),
        "support": (p > 0).double().sum(-1).mean(-1),
        "outside": (of_label == 0).double().mean(-1),
    }


def report(records: pd.DataFrame, settings: Settings, shown: Settings) -> Report:
    confidence = shown["confidence"]
    by = dict(iter(records.groupby("chosen_by")))
    lines, findings = [], []
    for contender, opponent in shown["compared"]:
        pair = contender, opponent, "data_set", confidence
        found = compare(by["brier"], "brier", *pair, relative=True)
        lines.append(
            {
                "change": f"{contender} against {opponent}",
                "Brier, relative": str(found),
                "Brier": str(compare(by["brier"], "brier", *pair)),
                "data sets better": f"{_better(by['brier'], contender, opponent)} of {found.units}",
                "accuracy": str(compare(by["brier"], "accuracy", *pair)),
                "clipped log loss": str(compare(by["log_loss"], "log_loss", *pair)),
            }
        )
        if [contender, opponent] in shown["found"]:
            one, other = (name.replace(CALIBRATED, " with a temperature") for name in (contender, opponent))
            use, verdict, difference = "probabilities of boosted trees", found.verdict("lower"), f"Brier score {found}"
            findings.append(Finding(use, one, other, verdict, difference, found.units, settings["splits"]))
    tables = {
        "Changes, with their intervals over data sets": pd.DataFrame(lines),
        "Means over data sets, chosen by the Brier score": _means(by["brier"]),
        "Means over data sets, chosen by the clipped log loss": _means(by["log_loss"]),
        "Brier score on each data set": _by_data_set(by["brier"], shown["on_each_data_set"]),
    }
    return Report(tables, findings, shown["notes"])


def _of_data_sets(records: pd.DataFrame) -> pd.DataFrame:
    """The mean over splits for each data set and contender, with a column for each metric."""
    means = records.groupby(["data_set", "contender", "metric"], sort=False)["value"].mean()
    return means.unstack("metric")[list(dict.fromkeys(records["metric"]))]


def _better(records: pd.DataFrame, contender: str, opponent: str) -> int:
    brier = _of_data_sets(records)["brier"].unstack("contender")
    return int((brier[contender] < brier[opponent]).sum())


def _means(records: pd.DataFrame) -> pd.DataFrame:
    means = _of_data_sets(records).groupby("contender", sort=False).mean()
    outside = records[records["metric"] == "outside"]
    infinite = (outside["value"] > 0).groupby(outside["contender"]).mean()
    written = means.map("{:.4f}".format)
    written["outside"] = means["outside"].map("{:.2%}".format)
    written["splits with infinite log loss"] = infinite.map("{:.0%}".format)
    return written.reset_index()


def _by_data_set(records: pd.DataFrame, contenders: list[str]) -> pd.DataFrame:
    sizes = records.groupby("data_set", sort=False)[["rows", "features", "classes"]].first()
    brier = _of_data_sets(records)["brier"].unstack("contender")[contenders]
    return sizes.astype(str).join(brier.map("{:.4f}".format)).reset_index()
