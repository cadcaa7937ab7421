"""Configurations for figures and summaries: each with its runs, a label and a style."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, NamedTuple

from experiments.identity import decisive
from experiments.record import Record
from reporting.look.palette import FILL_STYLES, LINE_STYLES, OBJECTIVES, label, look, look_of, order
from reporting.records.runs import Runs

_NUMBER = re.compile(r"(\d+(?:\.\d+)?(?:e-?\d+)?)")
_Configuration = tuple[str, int]  # the label of the settings, and a number among those with the same


class Group(NamedTuple):
    """The runs of one configuration, with the same label and style in every figure."""

    label: str
    runs: Runs
    style: dict[str, Any]


def label_runs(records: list[Record]) -> dict[str, Runs]:
    """The runs of each configuration of an experiment by its label, in the order of the palette.

    Configurations with the same label are told apart by the one or two settings in which they differ; where more
    differ, or these do not tell them apart, by their run_id.
    """
    alike: dict[str, list[Runs]] = {}
    for _, same_settings in groupby(sorted(records, key=attrgetter("run_id")), key=attrgetter("run_id")):
        runs = Runs(tuple(same_settings))
        alike.setdefault(_label(runs.records[0]), []).append(runs)
    groups = [
        Group(text + apart, runs, {})
        for text, several in alike.items()
        for apart, runs in zip(_told_apart(several), several, strict=True)
    ]
    return {group.label: group.runs for group in sorted(groups, key=_order)}


def _told_apart(alike: list[Runs]) -> list[str]:
    if len(alike) == 1:
        return [""]
    first = [runs.records[0] for runs in alike]
    settings = [_flat(decisive(record.config)) for record in first]
    names = [name for name in dict.fromkeys(chain(*settings)) if len({repr(one.get(name)) for one in settings}) > 1]
    short = {name.rpartition(".")[2]: name for name in names}
    texts = ["".join(f", {text}={one.get(name)}" for text, name in short.items()) for one in settings]
    told_apart = len(short) == len(names) <= 2 and len({*texts}) == len(texts)
    return texts if told_apart else [f" [{record.run_id[:8]}]" for record in first]


def _flat(settings: Mapping[str, Any], group: str = "") -> dict[str, Any]:
    """Nested settings by names such as optimizer.learning_rate."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        flat |= _flat(value, f"{group}{key}.") if isinstance(value, Mapping) else {group + key: value}
    return flat


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


def _order(group: Group) -> tuple[tuple[float, ...], list[str | float]]:
    parts = _NUMBER.split(group.label)  # texts and numbers in turn
    return order(group.runs.activation), [float(part) if place % 2 else part for place, part in enumerate(parts)]


def _label(record: Record) -> str:
    text = label(record.config["activation"], record.config["data"])
    attention = (record.config["model"].get("attention") or {}).get("name", "softmax")
    return text if attention == "softmax" else f"{text}, attention {look(attention).label}"
