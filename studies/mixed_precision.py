"""Mixed precision: the sparsity of the paper's printed formula by precision alone, on the same logits.

Each task takes a finished run, and computes the formula on the logits of its test examples.
"""

from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

import sharmix
from experiments.run import load_run
from studies.networks import finished_folder
from studies.printed_map import softmax_of_logarithm
from studies.study import Report, Row, Settings, Task

OWN = "our map"


def tasks(settings: Settings, data: Path | None) -> list[Task]:
    return [{"data_set": name} for name in settings["runs"]]


@torch.inference_mode()
def measure(task: Task, settings: Settings, data: Path | None) -> list[Row]:
    run = settings["runs"][task["data_set"]]
    module, splits = load_run(finished_folder(run["overrides"], run["seed"]), data)
    batches = [(module(batch.inputs), batch.targets) for batch in splits.test_dataloader()]
    logits, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
    rows = []
    for q in settings["orders"]:
        for reading, p in _readings(logits.float(), q, settings).items():
            accuracy = (p.argmax(-1) == targets).double().mean().item()
            for metric, value in (("sparsity", (p == 0).double().mean().item()), ("accuracy", accuracy)):
                rows.append({"contender": reading, "q": q, "metric": metric, "value": value})
    return rows


def _readings(logits: Tensor, q: float, settings: Settings) -> dict[str, Tensor]:
    """The probabilities [n, classes] of our map, and of the printed formula in each precision."""
    own = sharmix.sharmix(logits, q, settings["r"])
    u = own ** (q - 1)  # up to a factor of each row, which the softmax takes out again
    return {OWN: own} | {
        dtype: softmax_of_logarithm(u.to(getattr(torch, dtype)), q, settings["clamp"]) for dtype in settings["dtypes"]
    }


def report(records: pd.DataFrame, settings: Settings, shown: Settings) -> Report:
    """Sparsity and accuracy by data set, q and precision."""
    tables = {
        f"{metric.capitalize()} on test, by precision": of_metric.pivot_table(
            "value", ["data_set", "q"], "contender", sort=False
        )
        .map("{:.3f}".format)
        .reset_index()
        .rename(columns={"data_set": "data set"})
        for metric, of_metric in records.groupby("metric", sort=False)
    }
    return Report(tables, [], shown["notes"])
