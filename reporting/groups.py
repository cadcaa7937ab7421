"""The runs of one configuration over seeds, as figures and summaries show them."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import pandas as pd

from reporting.palette import FILL_STYLES, LINE_STYLES, label, look, rank
from reporting.records import Record
from reporting.selection import Runs


class Group(NamedTuple):
    """The runs of one configuration by seed, with the label and the style that every figure gives them."""

    label: str
    runs: Runs
    style: dict[str, Any]

    def activation(self) -> dict[str, Any]:
        """The `config.activation` that all of its runs have."""
        configured: dict[str, Any] = next(iter(self.runs.values()))["config"]["activation"]
        return configured

    def curves(self, column: str) -> pd.DataFrame:
        """A column of the records' curves, a line an epoch and a column a seed; empty where it was not measured."""
        curves = {
            seed: pd.Series({row["epoch"]: row[column] for row in record["curves"] if column in row}, dtype=float)
            for seed, record in self.runs.items()
        }
        return pd.DataFrame(curves).sort_index()

    def paths(self) -> list[pd.DataFrame]:
        """The way that learned (q, r) took, for each seed: from where they start, a line an epoch. α is q = r = α."""
        activation = self.activation()
        names = ["alpha", "alpha"] if activation.get("alpha") is not None else ["q", "r"]
        q, r = (self.curves(name) for name in names)
        if q.empty or r.empty:
            return []
        start = pd.DataFrame({"q": [activation[names[0]]], "r": [activation[names[1]]]}, index=[0])
        return [pd.concat([start, pd.DataFrame({"q": q[seed], "r": r[seed]})]) for seed in self.runs]


def label_runs(records: list[Record]) -> dict[str, Runs]:
    """The runs of each configuration of an experiment.

    Args:
        records: records of one experiment.

    Returns:
        Runs by label, in the order of the palette; where two configurations have the same label, their run_id is added
        to it.
    """
    ordered = sorted(records, key=lambda record: (*_order(_label(record), record), record["run_id"]))
    runs = [list(group) for _, group in groupby(ordered, key=lambda record: record["run_id"])]
    labels = [_label(group[0]) for group in runs]
    unique = [
        text if labels.count(text) == 1 else f"{text} [{group[0]['run_id'][:8]}]"
        for text, group in zip(labels, runs, strict=True)
    ]
    return {text: {run["seed"]: run for run in group} for text, group in zip(unique, runs, strict=True)}


def style_groups(panels: Sequence[Mapping[str, Runs]]) -> list[list[Group]]:
    """Give each configuration a style: one label looks the same in every panel.

    Args:
        panels: runs by label, for each panel of a figure.

    Returns:
        The groups of each panel, in the order of the palette. Configurations of one activation share its colour and
        marker; their lines and the filling of their markers tell them apart.
    """
    examples = {text: next(iter(runs.values())) for panel in panels for text, runs in panel.items() if runs}
    styles: dict[str, dict[str, Any]] = {}
    used: dict[str, int] = {}
    for text in sorted(examples, key=lambda text: _order(text, examples[text])):
        name = examples[text]["config"]["activation"]["name"]
        place = used.setdefault(name, 0)
        used[name] += 1
        styles[text] = {
            "color": look(name).colour,
            "marker": look(name).marker,
            "linestyle": LINE_STYLES[place % len(LINE_STYLES)],
            "fillstyle": FILL_STYLES[place % len(FILL_STYLES)],
        }
    return [[Group(text, panel[text], styles[text]) for text in styles if panel.get(text)] for panel in panels]


def _order(text: str, record: Record) -> tuple[int, str]:
    return rank(record["config"]["activation"]["name"]), text


def _label(record: Record) -> str:
    return label(record["config"]["activation"], record["config"]["data"])
