"""What a reader needs to trust a table and to repeat it."""

from collections.abc import Iterable
from typing import Any

from experiments.record import Record
from reporting.declaration import Declaration, Table
from reporting.same_code import describe_code
from reporting.selection import Selection, final_epoch

GROUPS = ("many", "medium", "few")


def table_notes(declaration: Declaration, table: Table, selection: Selection) -> list[str]:
    """The notes under a table.

    Args:
        declaration: how intervals are drawn.
        table: the table.
        selection: its runs.

    Returns:
        The missing runs; how means, deviations and intervals were computed; the epochs of the numbers; the groups of
        long-tailed classes; code, hardware and software; the command that repeats the table.
    """
    records = list(selection.records())
    environments = [record.environment for record in records]
    software = ({"python": environment.python} | environment.packages for environment in environments)
    return [
        *([f"Missing runs: {'; '.join(selection.missing)}."] if selection.missing else []),
        _statistics(declaration, table),
        *_epochs(table, selection, records),
        *_data(table, records),
        *_scoring(table, records),
        f"Code: {_distinct(map(describe_code, records))}.",
        f"Hardware: {_distinct(_pairs(environment.hardware) for environment in environments)}.",
        f"Software: {_distinct(map(_pairs, software))}.",
        f"Repeat: {table.repeat}",
    ]


def _statistics(declaration: Declaration, table: Table) -> str:
    if len(table.seeds) == 1:
        return f"Seed {table.seeds[0]} alone: no deviation, no interval, and nothing is decided."
    mean = f"Mean ± standard deviation over seeds {', '.join(map(str, table.seeds))}"
    if table.compared is None:
        return f"{mean}."
    return (
        f"{mean}; the difference "
        f"is paired by seed, with its percentile bootstrap interval "
        f"({declaration.bootstrap.confidence:.0%}, {declaration.bootstrap.resamples} resamples), which "
        "is narrower than its name says where seeds are few."
    )


def _epochs(table: Table, selection: Selection, records: list[Record]) -> list[str]:
    notes = []
    if (shown := final_epoch(table, selection)) != table.epoch:
        whole = "published numbers are of" if table.published else "experiment ends with"
        notes.append(
            f"The {whole} epoch {table.epoch}; ours are of epoch {shown}, the last that all runs have reached."
        )
    if table.epoch is not None or any(columns.epochs for columns in table.columns):
        notes.append(f"Epochs trained: {_distinct(str(record.last_epoch) for record in records)}.")
    if any(not columns.epochs for columns in table.columns if columns.measured):
        notes += _selected_epochs(table, selection)
    of_training = any(columns.split == "train" for columns in table.columns)
    if of_training and "running" in map(_train_metrics, records):
        notes.append("The training split is measured while an epoch trains, each batch before its step.")
    return notes


def _train_metrics(record: Record) -> str | None:
    """The setting `train_metrics`, which stands under `data`, or in old records under `trainer`."""
    places: list[dict[str, Any]] = [record.config["data"], record.config.get("trainer", {})]
    return next((place["train_metrics"] for place in places if "train_metrics" in place), None)


def _selected_epochs(table: Table, selection: Selection) -> list[str]:
    chosen = {
        text: dict.fromkeys(record.reported_epoch for record in selection.rows[row].records if record.selected_by)
        for row, text in table.labels().items()
    }
    by = _distinct(record.selected_by for record in selection.records() if record.selected_by)
    epochs = "; ".join(f"{text} {', '.join(map(str, found))}" for text, found in chosen.items() if found)
    return [f"Each run reports the epoch with its largest {by}: {epochs}."] if by else []


def _data(table: Table, records: list[Record]) -> list[str]:
    notes = [f"Runs with {_flat(table.where)}."] if table.where else []
    return [*notes, *sorted({_shots(record.data) for record in records if "shot_rule" in record.data})]


def _scoring(table: Table, records: list[Record]) -> list[str]:
    """How the metrics shown are computed, where there are several ways."""
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
    counts = ", ".join(f"{data[f'{group}_classes']} {group}" for group in GROUPS if f"{group}_classes" in data)
    largest, smallest = (data.get(f"{which}_class", "unknown") for which in ("largest", "smallest"))
    return (
        f"Groups of classes: {data['shot_rule']}; {counts}. "
        f"The largest class has {largest} training examples, the smallest {smallest}."
    )


def _pairs(facts: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in facts.items() if value is not None)


def _distinct(texts: Iterable[str]) -> str:
    return "; ".join(sorted(set(texts)))
