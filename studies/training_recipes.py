"""Training recipes: CIFAR-100 under the recipes that the paper leaves open, for ten epochs.

Each task trains one row of Table 4 under one recipe, and keeps its accuracy after every epoch.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.identity import ROOT
from reporting.records.collected_records import read_records
from reporting.records.yaml_files import read_yaml
from studies.forensics import PUBLISHED
from studies.study import Report, Row, Settings, Task
from studies.training import trained

SPLITS = ("test", "train")


def tasks(settings: Settings, data: Path | None) -> list[Task]:
    return [{"recipe": recipe, "contender": row} for recipe in settings["recipes"] for row in settings["rows"]]


def measure(task: Task, settings: Settings, data: Path | None) -> list[Row]:
    record = trained(
        settings["experiment"],
        *settings["rows"][task["contender"]],
        *settings["recipes"][task["recipe"]],
        f"trainer.max_epochs={settings['epochs']}",
        f"seed={settings['seed']}",
        data=data,
    )
    return _accuracies(record.curves)


def report(records: pd.DataFrame, settings: Settings, shown: Settings) -> Report:
    """Theirs beside ours after the last epoch, for each recipe; first the recorded runs of the suite's experiment."""
    published, last = read_yaml(PUBLISHED)[settings["published"]], settings["epochs"]
    records = pd.concat([pd.DataFrame(_recorded(settings)), records])
    rows = records[records["epoch"] == last].pivot_table("value", ["contender", "recipe"], "metric", sort=False)
    table = [
        {
            "activation": contender,
            "recipe": recipe,
            "test": f"{ours['test accuracy']:.3f}",
            "theirs": f"{published[contender]['accuracy'][last]:.3f}",
            "train": f"{ours['train accuracy']:.3f}",
            "theirs, epoch 50": f"{published[contender]['train_accuracy'][50]:.3f}",
        }
        for contender in settings["rows"]
        for recipe, ours in rows.loc[contender].iterrows()
    ]
    return Report({f"Accuracy after {last} epochs, by recipe": pd.DataFrame(table)}, [], shown["notes"])


def _recorded(settings: Settings) -> Iterator[Row]:
    """The rows of the suite's experiment, from results/records/."""
    for record in read_records(ROOT / "results", settings["experiment"]):
        row = record.config["activation"]["name"]
        if row in settings["rows"] and record.seed == settings["seed"]:
            keys = {"contender": row, "recipe": "our experiment"}
            yield from (keys | one for one in _accuracies(record.curves))


def _accuracies(curves: list[dict[str, Any]]) -> list[Row]:
    return [
        {"epoch": row["epoch"], "metric": f"{split} accuracy", "value": row[f"{split}/accuracy"]}
        for row in curves
        for split in SPLITS
    ]
