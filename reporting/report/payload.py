"""The runs in the form that the page's script reads, with every number unchanged from the records."""

import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.identity import ROOT
from experiments.metric_catalogue import METRICS, metric
from experiments.record import Record
from experiments.run_folder import RECORD
from reporting.look.palette import LINE_STYLES, on_dark
from reporting.records.groups import Group
from reporting.records.runs import Runs
from reporting.records.yaml_files import read_yaml

_SPLITS = ("test", "validation", "dev", "train")
_PROGRESS = {"epoch", "steps", "training_seconds"}
_DASHES = ("solid", "dash", "dashdot", "dot", "12px,3px", "2px,5px", "10px,3px,2px,3px,2px,3px", "16px,5px", "3px,3px")
_SYMBOLS = {
    "o": "circle",
    "s": "square",
    "^": "triangle-up",
    "v": "triangle-down",
    ">": "triangle-right",
    "P": "cross",
    "D": "diamond",
    "d": "diamond-tall",
    "p": "pentagon",
    "X": "x",
    "*": "star",
    "h": "hexagon",
}


def run_key(record: Record) -> str:
    """The page's name of a run, also in its address: experiment, hash of the settings, seed."""
    return f"{group_key(record)}/seed-{record.seed}"


def group_key(record: Record) -> str:
    """The page's name of runs that differ only in their seed."""
    return f"{record.experiment}/{record.run_id}"


def repeating_command(record: Record, file: Path) -> str:
    """The command that repeats the run of a record, which a file holds, alone or among others."""
    one_of_several = [f"run_id={record.run_id}", f"seed={record.seed}"] if file.name != RECORD else []
    return shlex.join(["python", "-m", "experiments.repeat", str(file), *one_of_several])


def build_payload(experiments: Mapping[str, list[Group]], file_of: Callable[[Record], Path]) -> dict[str, Any]:
    """All runs as JSON values for the page's script, from the configurations of each experiment.

    `file_of` gives the file that holds a record. The values are `experiments`, each with its columns; `groups`, the
    configurations with their looks; and `runs`, by their `run_key`.
    """
    every = [group for groups in experiments.values() for group in groups]
    return {
        "experiments": {name: _experiment(name, groups) for name, groups in experiments.items()},
        "groups": {group_key(group.runs.records[0]): _group(group) for group in every},
        "runs": {run_key(one): _run(one, group.label, file_of(one)) for group in every for one in group.runs.records},
    }


def _experiment(name: str, groups: list[Group]) -> dict[str, Any]:
    measured = {column for group in groups for record in group.runs.records for row in record.curves for column in row}
    shown = {one for one in measured - _PROGRESS if not re.search(r"\.head_\d+\.|support_to_\d+$", one)}  # too many
    columns = sorted(shown, key=_order)
    of_test = [column for column in columns if column.startswith("test/")]
    return {
        "about": _about(name),
        "groups": [group_key(group.runs.records[0]) for group in groups],
        "columns": {column: _label(column) for column in columns},
        "means": [column for column in of_test if metric(column).summarised],
        "headline": next(iter(of_test or columns), None),
    }


def _label(column: str) -> str:
    """The name of a column of the curves, such as "macro-F1, test" for "test/macro_f1"."""
    split, slash, _ = column.rpartition("/")
    return f"{metric(column).label}, {split}" if slash else metric(column).label


def _order(column: str) -> tuple[int, int, str]:
    """Sorts columns by metric, in the order of the catalogue, then by split."""
    split, _, name = column.rpartition("/")
    place = list(METRICS).index(name) if name in METRICS else len(METRICS)
    return place, _SPLITS.index(split) if split in _SPLITS else len(_SPLITS), column


def _about(experiment: str) -> str:
    """The description in the first line of conf/experiment/<experiment>.yaml; empty if there is none."""
    file = ROOT / "conf" / "experiment" / f"{experiment}.yaml"
    lines = file.read_text("utf-8").splitlines() if file.is_file() else []
    texts = [line.removeprefix("#").strip() for line in lines if line.startswith("#") and "@package" not in line]
    return texts[0] if texts else ""


def _group(group: Group) -> dict[str, Any]:
    return {
        "label": group.label,
        "activation": group.runs.activation["name"],
        "default": _has_default_settings(group.runs.activation),
        "colour": [group.style["color"], on_dark(group.style["color"])],
        "dash": _DASHES[LINE_STYLES.index(group.style["linestyle"])],
        "symbol": _SYMBOLS[group.style["marker"]],
        "runs": [run_key(record) for record in group.runs.records],
    }


def _has_default_settings(activation: Mapping[str, Any]) -> bool:
    """Whether an activation has the settings of conf/activation, such as the orders (1.25, 1.5)."""
    file = ROOT / "conf" / "activation" / f"{activation['name']}.yaml"
    return file.is_file() and all(activation.get(name) == value for name, value in read_yaml(file).items())


def _run(record: Record, label: str, file: Path) -> dict[str, Any]:
    columns = list(dict.fromkeys(column for row in record.curves for column in row))
    return record.model_dump() | {
        "key": run_key(record),
        "group": group_key(record),
        "label": label,
        "code": record.code.model_dump(exclude={"files"}),  # the digest is the hash of all files
        "curves": {column: [row.get(column) for row in record.curves] for column in columns},
        "path": _path(record),
        "command": repeating_command(record, file),
    }


def _path(record: Record) -> dict[str, list[float]]:
    """The orders q and r by epoch, from 0 on; one point if they are fixed, none for maps of another family."""
    (path,) = Runs((record,)).paths() or [pd.DataFrame(columns=["q", "r"])]
    return {"epochs": path.index.tolist(), **path.to_dict("list")}
