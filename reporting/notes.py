"""The notes below a table: what the numbers mean, where they come from, and how to repeat them."""

from collections.abc import Iterable
from typing import Any

from experiments.metric_catalogue import SHOTS
from experiments.record import Record
from reporting.declaration import Declaration, Table
from reporting.palette import label
from reporting.same_code import describe_code
from reporting.selection import Selection, final_epoch


def table_notes(declaration: Declaration, table: Table, selection: Selection) -> list[str]:
    """Notes on the meaning of a table's numbers: what is missing, how means are made, the epochs, the scores."""
    records = list(selection.records())
    return [
        *([table.about] if table.about else []),
        *([f"Missing runs: {'; '.join(selection.missing)}."] if selection.missing else []),
        *(_theirs(table) if table.printed() else []),
        _statistics(declaration, table),
        *_epochs(table, selection, records),
        *_data(table, records),
        *_scoring(table, records),
    ]


def provenance_notes(table: Table, selection: Selection) -> list[str]:
    """Where the numbers of a table come from: code, hardware, software, and the command that repeats the table."""
    records = list(selection.records())
    environments = [record.environment for record in records]
    software = ({"python": environment.python} | environment.packages for environment in environments)
    return [
        f"Code: {_distinct(map(describe_code, records))}.",
        f"Hardware: {_distinct(_pairs(environment.hardware) for environment in environments)}.",
        f"Software: {_distinct(map(_pairs, software))}.",
        f"Repeat: {table.repeat}",
    ]


def _theirs(table: Table) -> list[str]:
    number = "number, or the difference of two" if table.compared else "number"
    return [f"Theirs: the published {number}. Ours: measured by us."]


def _statistics(declaration: Declaration, table: Table) -> str:
    if len(table.seeds) == 1:
        return f"One seed ({table.seeds[0]}): there is no deviation and no interval, so no claim is decided."
    mean = f"Our numbers are means ± standard deviations over the seeds {_listed(table.seeds)}.{_fewer_seeds(table)}"
    if table.compared is None:
        return mean
    return (
        f"{mean} The difference to {label(table.baseline or {})} is paired by seed; its {declaration.confidence:.0%} "
        "interval is Student's t, and a difference whose interval excludes 0 is bold."
    )


def _fewer_seeds(table: Table) -> str:
    """A sentence for the rows that have some of the table's seeds alone."""
    rows = [
        f"{text} ({_listed(table.seeds_of(row))})"
        for row, text in table.labels().items()
        if len(table.seeds_of(row)) < len(table.seeds)
    ]
    return f" These rows have fewer: {', '.join(rows)}." if rows else ""


def _listed(seeds: Iterable[int]) -> str:
    return ", ".join(map(str, seeds))


def _epochs(table: Table, selection: Selection, records: list[Record]) -> list[str]:
    notes = []
    if (shown := final_epoch(table, selection)) != table.epoch:
        whole = "published numbers are of" if table.published else "experiment ends with"
        notes.append(
            f"The {whole} epoch {table.epoch}. Ours are of epoch {shown}, the last that all runs have reached."
        )
    if table.epoch is not None or any(columns.epochs for columns in table.columns):
        notes.append(f"Epochs trained: {_distinct(str(record.last_epoch) for record in records)}.")
    if any(not columns.epochs for columns in table.columns if columns.measured):
        notes += _selected_epochs(table, selection)
    of_training = any(columns.split == "train" for columns in table.columns)
    if of_training and any(record.config["data"].get("train_metrics") == "running" for record in records):
        notes.append("Metrics on the training split are measured while an epoch trains, on each batch before its step.")
    return notes


def _selected_epochs(table: Table, selection: Selection) -> list[str]:
    chosen = {
        text: dict.fromkeys(record.epoch for record in selection.rows[row].records if record.selected_by)
        for row, text in table.labels().items()
    }
    by = _distinct(record.selected_by for record in selection.records() if record.selected_by)
    epochs = "; ".join(f"{text} {', '.join(map(str, found))}" for text, found in chosen.items() if found)
    return [f"Each run reports its epoch with the largest {by}: {epochs}."] if by else []


def _data(table: Table, records: list[Record]) -> list[str]:
    notes = [f"Runs whose settings have {_flat(table.where)}."] if table.where else []
    return [*notes, *sorted({_shots(record.data) for record in records if "shot_rule" in record.data})]


def _scoring(table: Table, records: list[Record]) -> list[str]:
    """A note on metrics that can be computed in several ways."""
    titles = table.metrics()
    ways = _distinct(
        f"{titles[metric]} {way}"
        for record in records
        for metric, way in record.measured_by.items()
        if metric in titles
    )
    return [f"Scores: {ways}."] if ways else []


def _flat(where: dict[str, Any], prefix: str = "") -> str:
    return ", ".join(
        _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else f"{prefix}{key}={value}"
        for key, value in where.items()
    )


def _shots(data: dict[str, Any]) -> str:
    counts = ", ".join(f"{data[f'{group}_classes']} {group}" for group in SHOTS if f"{group}_classes" in data)
    largest, smallest = (data.get(f"{which}_class", "unknown") for which in ("largest", "smallest"))
    return (
        f"Groups of classes: {data['shot_rule']}; {counts}. "
        f"The largest class has {largest} training examples, the smallest {smallest}."
    )


def _pairs(facts: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in facts.items() if value is not None)


def _distinct(texts: Iterable[str]) -> str:
    return "; ".join(sorted(set(texts)))
