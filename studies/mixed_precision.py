"""Mixed precision: the sparsity of the paper's printed formula by precision alone, on the same logits.

Each task takes a finished run, and computes the formula on the logits of its test examples.
"""

from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

import sharmix
from studies.logits import network_logits
from studies.printed_map import softmax_of_logarithm
from studies.study import Report, Row, Settings, Task, rows_of

OWN = "our map"


def tasks(settings: Settings, data: Path | None) -> list[Task]:
    return [{"data_set": name} for name in settings["runs"]]


def measure(task: Task, settings: Settings, data: Path | None) -> list[Row]:
    run = settings["runs"][task["data_set"]]
    logits, targets, _ = network_logits(run["overrides"], run["seed"], data)
    rows = []
    for q in settings["orders"]:
        for reading, p in readings(logits.float(), q, settings).items():
            values = {"sparsity": (p == 0).double().mean(), "accuracy": (p.argmax(-1) == targets).double().mean()}
            rows += rows_of(values, contender=reading, q=q)
    return rows


def readings(logits: Tensor, q: float, settings: Settings) -> dict[str, Tensor]:
    """The probabilities [n, classes] of our map, and of the printed formula in each precision."""
    own = sharmix.sharmix(logits, q, settings["r"])
    u = own ** (q - 1)  # up to a factor of each row, which the softmax removes
    return {OWN: own} | {
        dtype: softmax_of_logarithm(u.to(getattr(torch, dtype)), q, settings["clamp"]) for dtype in settings["dtypes"]
    }


def report(records: pd.DataFrame, settings: Settings, shown: Settings) -> Report:
    """Sparsity and accuracy by data set, q and precision."""
    tables = {}
    for metric, rows in records.rename(columns={"data_set": "data set"}).groupby("metric", sort=False):
        means = rows.pivot_table("value", ["data set", "q"], "contender", sort=False)
        tables[f"{metric.capitalize()} on test, by precision"] = means.map("{:.3f}".format).reset_index()
    return Report(tables, [], shown["notes"])
