"""Boosted trees: LightGBM's own objective, softmax, entmax and SharMiX.

For each split of a table, every contender trains at every learning rate. The validation part chooses the rate, and the
test part gives the scores.
"""

from collections.abc import Callable
from functools import partial
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
from studies.boosting_objective import Objective
from studies.comparison import compare
from studies.packaged_tables import chosen_tables, read_table
from studies.study import Finding, Report, Row, Settings, Task, rows_of

CALIBRATED = " + T"
METRICS = {"brier": ("brier", "accuracy", "support", "outside", "temperature"), "log_loss": ("log_loss", "outside")}

Parts = dict[str, np.ndarray]


def tasks(settings: Settings, data: Path | None) -> list[Task]:
    return [
        {"data_set": name, **table.sizes, "split": split}
        for name, table in chosen_tables(settings["data_sets"]).items()
        for split in range(settings["splits"])
    ]


def measure(task: Task, settings: Settings, data: Path | None) -> list[Row]:
    table = read_table(task["data_set"], settings["data_sets"])
    rows = rows_of_parts(table.labels, task["split"], settings)
    x, y = ({part: of_table[own] for part, own in rows.items()} for of_table in (table.features, table.labels))
    trained = {
        name: [train(objective, rate, x, y, settings) for rate in settings["learning_rates"]]
        for name, objective in settings["contenders"].items()
    }
    trained |= {name: [one for part in parts for one in trained[part]] for name, parts in settings["chosen"].items()}
    grid = settings["temperatures"]
    fitted = torch.from_numpy(np.geomspace(grid["least"], grid["largest"], grid["number"]))
    of_validation, of_test = (torch.from_numpy(y[part]) for part in ("validation", "test"))

    measured = []
    for (name, models), chosen_by, calibrated in product(trained.items(), METRICS, (False, True)):
        temperatures = fitted if calibrated else torch.ones(1, dtype=torch.float64)
        tried = []
        for activation, on_validation, on_test in models:
            p = activation(on_validation / temperatures[:, None, None])
            value, best = scores(p, of_validation, settings["clip"])[chosen_by].min(0)
            tried.append((value, temperatures[best], activation, on_test))
        _, temperature, activation, on_test = min(tried, key=lambda one: one[0])
        values = scores(activation(on_test / temperature), of_test, settings["clip"])
        values["temperature"] = temperature
        reported = {metric: values[metric] for metric in METRICS[chosen_by]}
        measured += rows_of(reported, contender=name + CALIBRATED * calibrated, chosen_by=chosen_by)
    return measured


def rows_of_parts(labels: np.ndarray, split: int, settings: Settings) -> Parts:
    """The numbers of the rows in each part of a split; each part has the classes' shares."""

    def divided(rows: np.ndarray, size: int) -> list[np.ndarray]:
        return train_test_split(rows, test_size=size, stratify=labels[rows], random_state=split)

    rows = np.arange(len(labels))
    if len(rows) > settings["most_rows"]:
        _, rows = divided(rows, settings["most_rows"])
    rest, test = divided(rows, round(settings["test_share"] * len(rows)))
    train, validation = divided(rest, round(settings["validation_share"] * len(rows)))
    return {"train": train, "validation": validation, "test": test}


def train(
    objective: Any, rate: float, x: Parts, y: Parts, settings: Settings
) -> tuple[sharmix.Activation, Tensor, Tensor]:
    """Train a model with an objective of the settings. The Brier score on the validation part stops the training.

    Returned are the map that makes raw scores probabilities, and the raw scores of the validation and the test part,
    [rows, classes] each.
    """
    classes = len(np.unique(y["train"]))
    parameters = settings["lightgbm"] | {"num_class": classes, "metric": "none", "learning_rate": rate}
    if isinstance(objective, str):
        activation, own, metric = sharmix.Softmax(), objective, partial(brier_score, np.asarray)
    else:
        own = Objective(**objective, hessian_floor=settings["hessian_floor"])
        activation, metric = own.activation, partial(brier_score, own.probabilities)
        parameters["learning_rate"] *= (classes - 1) / classes  # LightGBM's own Hessian has the inverse as a factor
    data = lightgbm.Dataset(x["train"], y["train"])
    model = lightgbm.train(
        parameters | {"objective": own},
        data,
        settings["rounds"],
        [data.create_valid(x["validation"], y["validation"])],
        feval=metric,
        callbacks=[lightgbm.early_stopping(settings["patience"], verbose=False)],
    )
    raw = [torch.from_numpy(model.predict(x[part], raw_score=True)) for part in ("validation", "test")]
    return activation, *raw


def brier_score(
    probabilities_of: Callable[[np.ndarray], np.ndarray], predictions: np.ndarray, data: lightgbm.Dataset
) -> tuple[str, float, bool]:
    """The metric that stops the training: its name, its value, and False, since a higher value is not better.

    LightGBM's own objective predicts probabilities, and ours raw scores.
    """
    probabilities = probabilities_of(predictions)
    wanted = np.eye(probabilities.shape[1])[data.get_label().astype(int)]
    return "brier", float(np.square(probabilities - wanted).sum(1).mean()), False


def scores(p: Tensor, labels: Tensor, clip: float) -> dict[str, Tensor]:
    """The mean scores [...] of probabilities p [..., rows, classes]. In the log loss, p is at least `clip`."""
    of_label = p.gather(-1, labels.expand(p.shape[:-1]).unsqueeze(-1)).squeeze(-1)
    return {
        "brier": (p.square().sum(-1) - 2 * of_label + 1).mean(-1),
        "log_loss": -of_label.clamp_min(clip).log().mean(-1),
        "accuracy": (p.argmax(-1) == labels).double().mean(-1),
        "support": (p > 0).double().sum(-1).mean(-1),
        "outside": (of_label == 0).double().mean(-1),
    }


def report(records: pd.DataFrame, settings: Settings, shown: Settings) -> Report:
    brier, log_loss = (records[records["chosen_by"] == score] for score in METRICS)
    tables = {
        "Changes, with their intervals over data sets": pd.DataFrame(
            _change(brier, log_loss, *pair) for pair in shown["compared"]
        ),
        "Means over data sets, chosen by the Brier score": _means(brier),
        "Means over data sets, chosen by the clipped log loss": _means(log_loss),
        "Brier score on each data set": _by_data_set(brier, shown["on_each_data_set"]),
    }
    return Report(tables, [_finding(brier, settings["splits"], *pair) for pair in shown["found"]], shown["notes"])


def _change(brier: pd.DataFrame, log_loss: pd.DataFrame, *pair: str) -> dict[str, str]:
    """The line of a contender and its opponent; both arguments have the records that were chosen by this score."""
    found = compare(brier, "brier", *pair, "data_set", relative=True)
    ours, theirs = (_of_data_sets(brier)["brier"].xs(name, level="contender") for name in pair)
    return {
        "change": " against ".join(pair),
        "Brier, relative": str(found),
        "Brier": str(compare(brier, "brier", *pair, "data_set")),
        "data sets better": f"{(ours < theirs).sum()} of {found.units}",
        "accuracy": str(compare(brier, "accuracy", *pair, "data_set")),
        "clipped log loss": str(compare(log_loss, "log_loss", *pair, "data_set")),
    }


def _finding(brier: pd.DataFrame, splits: int, *pair: str) -> Finding:
    found = compare(brier, "brier", *pair, "data_set", relative=True)
    contender, opponent = (name.replace(CALIBRATED, " with a temperature") for name in pair)
    use, difference = "probabilities of boosted trees", f"Brier score {found}"
    return Finding(use, contender, opponent, found.verdict("lower"), difference, found.units, splits)


def _of_data_sets(records: pd.DataFrame) -> pd.DataFrame:
    """The mean over splits for each data set and contender, with a column for each metric."""
    return records.pivot_table("value", ["data_set", "contender"], "metric", sort=False)


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
