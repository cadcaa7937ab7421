"""The runs in the form that the page's script reads, with every number unchanged from the records."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments.record import Record
from reporting.groups import Group, label_runs, style_groups
from reporting.palette import LINE_STYLES, look, on_dark
from reporting.report.labels import about, column_label, column_order, is_of_a_part
from reporting.report.progress import Unfinished
from reporting.report.repeat import Repeats
from reporting.runs import Runs

HEADLINES = ("accuracy", "bleu", "exact_match")  # the metric that a figure shows first
_AXES = ("epoch", "steps", "training_seconds")
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


def build_payload(experiments: Mapping[str, Sequence[Record]], unfinished: Sequence[Unfinished] = ()) -> dict[str, Any]:
    """All runs, sorted by experiment and configuration.

    Args:
        experiments: the records of each experiment.
        unfinished: runs that have no record yet.

    Returns:
        JSON values for the page's script: `experiments`, each with its columns; `groups`, the configurations with their
        looks; and `runs`, by their `run_key`.
    """
    repeats = Repeats()
    styled = style_groups([_by_attention(label_runs(list(records))) for records in experiments.values()])
    payload = {
        "experiments": {name: _experiment(name, groups) for name, groups in zip(experiments, styled, strict=True)},
        "groups": {group_key(group.runs.records[0]): _group(group) for groups in styled for group in groups},
        "runs": {
            run_key(record): _run(record, group.label, repeats)
            for groups in styled
            for group in groups
            for record in group.runs.records
        },
    }
    for run in unfinished:
        _add_unfinished(payload, run)
    return payload


def _by_attention(labelled: Mapping[str, Runs]) -> dict[str, Runs]:
    """Labels with the name of the attention instead of a hash, if this name distinguishes the configurations."""
    named = {label: f"{label.partition(' [')[0]}, attention {name}" for label, name in _attentions(labelled)}
    texts = [named.get(label, label) for label in labelled]
    return {
        text if texts.count(text) == 1 else label: runs
        for text, (label, runs) in zip(texts, labelled.items(), strict=True)
    }


def _attentions(labelled: Mapping[str, Runs]) -> Iterator[tuple[str, str]]:
    for label, runs in labelled.items():
        attention = (runs.records[0].config.get("model") or {}).get("attention")
        if label.endswith("]") and isinstance(attention, Mapping) and isinstance(attention.get("name"), str):
            yield label, look(attention["name"]).label


def _experiment(name: str, groups: list[Group]) -> dict[str, Any]:
    measured = {column for group in groups for record in group.runs.records for row in record.curves for column in row}
    keys = [group_key(group.runs.records[0]) for group in groups]
    return _shown_experiment(name, measured) | {"groups": keys}


def _shown_experiment(name: str, measured: set[str]) -> dict[str, Any]:
    columns = sorted((one for one in measured - {*_AXES} if not is_of_a_part(one)), key=column_order)
    headlines = [f"test/{metric}" for metric in HEADLINES if f"test/{metric}" in measured]
    return {
        "about": about(name),
        "groups": [],
        "columns": {column: column_label(column) for column in columns},
        "axes": [axis for axis in _AXES if axis in measured],
        "headline": headlines[0] if headlines else next(iter(columns), None),
    }


def _group(group: Group) -> dict[str, Any]:
    first = group.runs.records[0]
    place = LINE_STYLES.index(group.style["linestyle"])
    return {
        "label": group.label,
        "activation": first.config["activation"]["name"],
        "colour": [group.style["color"], on_dark(group.style["color"])],
        "dash": _DASHES[place],
        "symbol": _SYMBOLS.get(group.style["marker"], "circle"),
        "runs": [run_key(record) for record in group.runs.records],
    }


def _run(record: Record, label: str, repeats: Repeats) -> dict[str, Any]:
    columns = list(dict.fromkeys(column for row in record.curves for column in row))
    code = record.code.model_dump(exclude={"files"})  # the digest is the hash of all files
    kept = record.model_dump(exclude={"curves", "code", "experiment", "seed"}, exclude_unset=True)
    command, note = repeats.command(record)
    return kept | {
        "experiment": record.experiment,
        "group": group_key(record),
        "seed": record.seed,
        "label": label,
        "code": code,
        "epoch": record.reported_epoch,
        "curves": {column: [row.get(column) for row in record.curves] for column in columns},
        "start": _start(record),
        "command": command,
        "note": note,
    }


def _add_unfinished(payload: dict[str, Any], run: Unfinished) -> None:
    """Add a run without a record. It has only curves; it joins the finished runs of its settings, if there are any."""
    key = f"{run.experiment}/{run.run_id}"
    measured = {column for row in run.rows for column in row}
    experiment = payload["experiments"].setdefault(run.experiment, _shown_experiment(run.experiment, measured))
    if key not in payload["groups"]:
        own = look(run.activation)
        alike = sum(payload["groups"][other]["activation"] == run.activation for other in experiment["groups"])
        payload["groups"][key] = {
            "label": f"{own.label} [{run.run_id[:8]}]",
            "activation": run.activation,
            "colour": [own.colour, on_dark(own.colour)],
            "dash": _DASHES[alike % len(_DASHES)],
            "symbol": _SYMBOLS.get(own.marker, "circle"),
            "runs": [],
        }
        experiment["groups"].append(key)
    group = payload["groups"][key]
    group["runs"].append(f"{key}/seed-{run.seed}")
    payload["runs"][f"{key}/seed-{run.seed}"] = {
        "experiment": run.experiment,
        "group": key,
        "seed": run.seed,
        "label": group["label"],
        "epoch": len(run.rows),
        "curves": {column: [row.get(column) for row in run.rows] for column in sorted(measured)},
        "start": None,
        "state": run.state.value,
    }


def _start(record: Record) -> list[float] | None:
    """The orders (q, r) before the first epoch: a learned α means q = r = α, and normmax has r = 2 − 1/q.

    None for maps of another family.
    """
    activation = record.config["activation"]
    if activation["name"] == "alpha_relu":
        return None
    if (alpha := activation.get("alpha")) is not None:
        return [alpha, 2 - 1 / alpha if activation["name"] == "normmax" else alpha]
    fixed = {"softmax": [1.0, 1.0], "sparsemax": [2.0, 2.0]}.get(activation["name"])
    return fixed or ([activation["q"], activation["r"]] if activation.get("r") is not None else None)
