"""Coins."""

from pathlib import Path

import pandas as pd

from studies.comparison import compare
from studies.study import Finding, Report


def tasks(settings, data):
    return [{"data_set": name} for name in settings["values"]]


def measure(task, settings, data):
    with open("measured", "a") as file:
        file.write(task["data_set"])
    if task["data_set"] == settings.get("fails_at") and Path("failing").exists():
        raise RuntimeError("the coin is lost")
    ours, theirs = settings["values"][task["data_set"]]
    return [
        {"contender": name, "metric": "loss", "value": value} for name, value in (("ours", ours), ("theirs", theirs))
    ]


def report(records, settings, shown):
    found = compare(records, "loss", "ours", "theirs", "data_set")
    finding = Finding("toss", "ours", "theirs", found.verdict("lower"), str(found), found.units, 1)
    means = records.groupby("contender")["value"].mean().reset_index()
    equal = pd.DataFrame({"coin": ["x", "x"], "sides": [2, 2]})
    return Report({"Means": means, "Equal": equal}, [finding], ["A note."])
