"""Configurations for figures and summaries: each with its runs, a label and a style."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from experiments.record import Record
from reporting.palette import DEFAULTS, FILL_STYLES, LINE_STYLES, OBJECTIVES, PARAMETERS, label, look, look_of, order
from reporting.runs import Runs

_Configuration = tuple[str, int]  # settings as text, and a number among rows with the same


class Group(NamedTuple):
    """The runs of one configuration, with the same label and style in every figure."""

    label: str
    runs: Runs
    style: dict[str, Any]


def label_runs(records: list[Record]) -> dict[str, Runs]:
    """The runs of each configuration of an experiment by its label, in the order of the palette.

    Where two configurations have the same label, their run_id is added to it.
    """
    ordered = sorted(records, key=lambda record: (_order(_label(record), record), record.run_id))
    groups = [Runs(tuple(group)) for _, group in groupby(ordered, key=lambda record: record.run_id)]
    labels = [_label(runs.records[0]) for runs in groups]
    return {
        text if labels.count(text) == 1 else f"{text} [{runs.records[0].run_id[:8]}]": runs
        for text, runs in zip(labels, groups, strict=True)
    }


def style_groups(panels: Sequence[Mapping[str, Runs]]) -> list[list[Group]]:
    """Give each configuration a style: one configuration looks the same in every panel of a figure, whatever its label.

    Returns the groups of each panel in the order of the palette. Configurations of one activation share its colour and
    marker, unless another objective learned their orders; line style and marker filling distinguish them.
    """
    labels = [_labels_by_configuration(panel) for panel in panels]
    examples: dict[_Configuration, tuple[str, Record]] = {}
    for panel, named in zip(panels, labels, strict=True):
        for configuration, text in named.items():
            examples.setdefault(configuration, (text, panel[text].records[0]))
    styles: dict[_Configuration, dict[str, Any]] = {}
    used: Counter[str] = Counter()
    for configuration in sorted(examples, key=lambda one: _order(*examples[one])):
        activation = examples[configuration][1].config["activation"]
        own = look_of(activation)
        place = line = used[own.colour]  # third parties' activations share a colour
        used[own.colour] += 1
        if activation.get("objective") in OBJECTIVES:
            line += list(OBJECTIVES).index(activation["objective"])
        styles[configuration] = {
            "color": own.colour,
            "marker": own.marker,
            "linestyle": LINE_STYLES[line % len(LINE_STYLES)],
            "fillstyle": FILL_STYLES[place % len(FILL_STYLES)],
        }
    return [
        [Group(named[one], panel[named[one]], style) for one, style in styles.items() if one in named]
        for panel, named in zip(panels, labels, strict=True)
    ]


def _labels_by_configuration(panel: Mapping[str, Runs]) -> dict[_Configuration, str]:
    """The labels of a panel by what the rows' settings say of maps and augmentation.

    Rows that differ in another setting, such as a learning rate, are numbered.
    """
    labels: dict[_Configuration, str] = {}
    seen: Counter[str] = Counter()
    first = {text: runs.records[0] for text, runs in panel.items() if runs}
    for text in sorted(first, key=lambda text: _order(text, first[text])):
        settings = repr(_shown_settings(first[text].config))
        labels[settings, seen[settings]] = text
        seen[settings] += 1
    return labels


def _shown_settings(config: Mapping[str, Any]) -> list[Any]:
    """The settings that a look depends on; defaults count as not given."""
    activation = config["activation"]
    shown = [activation["name"], _attention(config), config["data"].get("augmentation", "none")]
    for key in ("q", "r", *PARAMETERS, "parameters"):
        value = activation.get(key)
        shown.append(None if value == DEFAULTS.get(key) else value)
    return shown


def _order(text: str, record: Record) -> tuple[tuple[float, ...], str]:
    return order(record.config["activation"]), text


def _label(record: Record) -> str:
    text, attention = label(record.config["activation"], record.config["data"]), _attention(record.config)
    return text if attention == "softmax" else f"{text}, attention {look(attention).label}"


def _attention(config: Mapping[str, Any]) -> str:
    return (config["model"].get("attention") or {}).get("name", "softmax")
