"""The notes below a table: what the numbers mean, where they come from, and how to repeat them."""

from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

from experiments.metric_catalogue import SHOTS
from experiments.record import Record
from reporting.look.palette import label
from reporting.records.selection import Selection, describe_code


def table_notes(selection: Selection, confidence: float) -> Iterator[str]:
    """Notes on a table: what is missing, how means are made, epochs, scores; then where the numbers come from.

    `confidence` is that of the intervals.
    """
    table, records = selection.table, list(selection.records())
    if table.about:
        yield table.about
    if selection.missing:
        yield f"Missing runs: {'; '.join(selection.missing)}."
    if table.printed():
        number = "number, or the difference of two" if table.compared else "number"
        yield f"Theirs: the published {number}. Ours: measured by us."
    yield _statistics(selection, confidence)
    yield from _epochs(selection, records)
    if table.where:
        [where] = pd.json_normalize(table.where).to_dict("records")
        yield f"Runs whose settings have {', '.join(f'{key}={value}' for key, value in where.items())}."
    yield from sorted({_shots(record.data) for record in records if "shot_rule" in record.data})
    titles = table.metrics()
    measured_by = (way for record in records for way in record.measured_by.items())
    if ways := _distinct(f"{titles[metric]} {way}" for metric, way in measured_by if metric in titles):
        yield f"Scores: {ways}."
    yield from _provenance(records)
    yield f"Repeat: {table.repeat}"


def _provenance(records: list[Record]) -> Iterator[str]:
    """Code, hardware and software of the records."""
    environments = [record.environment for record in records]
    software = ({"python": environment.python} | environment.packages for environment in environments)
    yield f"Code: {_distinct(map(describe_code, records))}."
    yield f"Hardware: {_distinct(_pairs(environment.hardware) for environment in environments)}."
    yield f"Software: {_distinct(map(_pairs, software))}."


def _statistics(selection: Selection, confidence: float) -> str:
    table = selection.table
    if len(table.seeds) == 1:
        undecided = ", so no claim is decided" if table.claims else ""
        return f"One seed ({table.seeds[0]}): there is no deviation and no interval{undecided}."
    fewer = [
        f"{text} ({_listed(table.seeds_of(row))})"
        for row, text in table.labels().items()
        if len(table.seeds_of(row)) < len(table.seeds)
    ]
    note = f"Our numbers are means ± standard deviations over the seeds {_listed(table.seeds)}."
    note += f" These rows have fewer: {', '.join(fewer)}." if fewer else ""
    if table.compared is None:
        return note
    return (
        f"{note} The difference to {label(table.baseline or {})} is paired by seed; its {confidence:.0%} "
        "interval is Student's t. A difference is bold if it differs from 0 after Holm's correction for the number of "
        "differences in the table."
    )


def _epochs(selection: Selection, records: list[Record]) -> Iterator[str]:
    table = selection.table
    if table.epoch is not None or any(columns.epochs for columns in table.columns):
        yield f"Epochs trained: {_distinct(str(record.last_epoch) for record in records)}."
    selected_by = _distinct(record.selected_by for record in records if record.selected_by)
    if selected_by and any(not columns.epochs for columns in table.columns if columns.measured):
        chosen = {
            text: dict.fromkeys(str(record.epoch) for record in selection.rows[row].records if record.selected_by)
            for row, text in table.labels().items()
        }
        epochs = "; ".join(f"{text} {', '.join(found)}" for text, found in chosen.items() if found)
        yield f"Each run reports its epoch with the largest {selected_by}: {epochs}."
    of_training = any(columns.split == "train" for columns in table.columns)
    running = [record.config["data"] for record in records if record.config["data"].get("train_metrics") == "running"]
    if of_training and running:
        drawn = any(data["sampler"] != "instance" for data in running)
        yield (
            "Metrics on the training split are measured while an epoch trains, on each batch before its step"
            f"{', with the images as the sampler draws them' if drawn else ''}."
        )


def _listed(seeds: Iterable[int]) -> str:
    return ", ".join(map(str, seeds))


def _shots(data: dict[str, Any]) -> str:
    counts = ", ".join(f"{data[f'{group}_classes']} {group}" for group in SHOTS if f"{group}_classes" in data)
    return (
        f"Groups of classes: {data['shot_rule']}; {counts}. "
        f"The largest class has {data['largest_class']} training examples, the smallest {data['smallest_class']}."
    )


def _pairs(facts: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in facts.items() if value is not None)


def _distinct(texts: Iterable[str]) -> str:
    return "; ".join(sorted(set(texts)))
