"""Configurations for figures and summaries: each with its runs, a label and a style."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from experiments.record import Record
from reporting.look.palette import FILL_STYLES, LINE_STYLES, OBJECTIVES, label, look, look_of, order
from reporting.records.runs import Runs

_Configuration = tuple[str, int]  # the label of the settings, and a number among those with the same


class Group(NamedTuple):
    """The runs of one configuration, with the same label and style in every figure."""

    label: str
    runs: Runs
    style: dict[str, Any]


def label_runs(records: list[Record]) -> dict[str, Runs]:
    """The runs of each configuration of an experiment by its label, in the order of the palette.

    Where two configurations have the same label, their run_id is added to it.
    """
    by_run_id = groupby(sorted(records, key=attrgetter("run_id")), key=attrgetter("run_id"))
    configurations = [Runs(tuple(records)) for _, records in by_run_id]
    groups = sorted((Group(_label(runs.records[0]), runs, {}) for runs in configurations), key=_order)
    labels = [group.label for group in groups]
    return {
        text if labels.count(text) == 1 else f"{text} [{runs.records[0].run_id[:8]}]": runs for text, runs, _ in groups
    }


def style_groups(panels: Sequence[Mapping[str, Runs]]) -> list[list[Group]]:
    """Give each configuration a style: one configuration looks the same in every panel of a figure, whatever its label.

    Returns the groups of each panel in the order of the palette. Configurations of one activation share its colour and
    marker, unless another objective learned their orders; line style and marker filling distinguish them.
    """
    configured = [_by_configuration(panel) for panel in panels]
    examples: dict[_Configuration, Group] = {}
    for panel in configured:
        examples = panel | examples
    styles: dict[_Configuration, dict[str, Any]] = {}
    used: Counter[str] = Counter()
    for configuration, group in sorted(examples.items(), key=lambda item: _order(item[1])):
        own, objective = look_of(group.runs.activation), group.runs.activation.get("objective")
        place = line = used[own.colour]  # third parties' activations share a colour
        used[own.colour] += 1
        if objective in OBJECTIVES:
            line += list(OBJECTIVES).index(objective)
        styles[configuration] = {
            "color": own.colour,
            "marker": own.marker,
            "linestyle": LINE_STYLES[line % len(LINE_STYLES)],
            "fillstyle": FILL_STYLES[place % len(FILL_STYLES)],
        }
    return [[panel[one]._replace(style=style) for one, style in styles.items() if one in panel] for panel in configured]


def _by_configuration(panel: Mapping[str, Runs]) -> dict[_Configuration, Group]:
    """The groups of a panel by the label of their settings, whatever label the panel gives them.

    Groups that differ in a setting that no label names, such as a learning rate, are numbered.
    """
    found: dict[_Configuration, Group] = {}
    seen: Counter[str] = Counter()
    for group in sorted((Group(text, runs, {}) for text, runs in panel.items() if runs), key=_order):
        own = _label(group.runs.records[0])
        found[own, seen[own]] = group
        seen[own] += 1
    return found


def _order(group: Group) -> tuple[tuple[float, ...], str]:
    return order(group.runs.activation), group.label


def _label(record: Record) -> str:
    text = label(record.config["activation"], record.config["data"])
    attention = (record.config["model"].get("attention") or {}).get("name", "softmax")
    return text if attention == "softmax" else f"{text}, attention {look(attention).label}"
