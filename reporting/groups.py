"""Configurations for figures and summaries: each with its runs, a label and a style."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from experiments.record import Record
from reporting.palette import FILL_STYLES, LINE_STYLES, OBJECTIVES, label, look_of, rank
from reporting.runs import Runs


class Group(NamedTuple):
    """The runs of one configuration, with the same label and style in every figure."""

    label: str
    runs: Runs
    style: dict[str, Any]


def label_runs(records: list[Record]) -> dict[str, Runs]:
    """Sort the records of an experiment by configuration.

    Args:
        records: records of one experiment.

    Returns:
        The runs of each configuration by its label, in the order of the palette. Where two configurations have the
        same label, their run_id is added to it.
    """
    ordered = sorted(records, key=lambda record: (*_order(_label(record), record), record.run_id))
    groups = [Runs(tuple(group)) for _, group in groupby(ordered, key=lambda record: record.run_id)]
    labels = [_label(runs.records[0]) for runs in groups]
    return {
        text if labels.count(text) == 1 else f"{text} [{runs.records[0].run_id[:8]}]": runs
        for text, runs in zip(labels, groups, strict=True)
    }


def style_groups(panels: Sequence[Mapping[str, Runs]]) -> list[list[Group]]:
    """Give each configuration a style: one label looks the same in every panel.

    Args:
        panels: runs by label, for each panel of a figure.

    Returns:
        The groups of each panel, in the order of the palette. Configurations of one activation share its colour
        and marker, unless another objective learned their orders; line style and marker filling distinguish them.
    """
    examples = {text: runs.records[0] for panel in panels for text, runs in panel.items() if runs}
    styles: dict[str, dict[str, Any]] = {}
    used: dict[str, int] = {}
    for text in sorted(examples, key=lambda text: _order(text, examples[text])):
        activation = examples[text].config["activation"]
        own = look_of(activation)
        place = used.setdefault(own.colour, 0)  # third parties' activations share a colour
        used[own.colour] += 1
        line = place
        if activation.get("objective") in OBJECTIVES:
            line += list(OBJECTIVES).index(activation["objective"])
        styles[text] = {
            "color": own.colour,
            "marker": own.marker,
            "linestyle": LINE_STYLES[line % len(LINE_STYLES)],
            "fillstyle": FILL_STYLES[place % len(FILL_STYLES)],
        }
    return [[Group(text, panel[text], styles[text]) for text in styles if panel.get(text)] for panel in panels]


def _order(text: str, record: Record) -> tuple[int, str]:
    return rank(record.config["activation"]["name"]), text


def _label(record: Record) -> str:
    return label(record.config["activation"], record.config["data"])
