"""The declared tables for the page: the papers' numbers beside ours, and the runs behind each of our numbers."""

from dataclasses import dataclass
from math import isnan, nan

from reporting.declaration import ORDERS, Cell, Columns, Numbers, Table, load_numbers
from reporting.kept_runs import KeptRuns
from reporting.notes import provenance_notes, table_notes
from reporting.number_formats import NOT_REACHED, NOTHING, with_deviation
from reporting.report.payload import group_key
from reporting.selection import Selection, final_epoch


@dataclass(frozen=True)
class Shown:
    """A number of a table.

    Attributes:
        text: the number as text.
        value: in full precision, to sort by; NaN if there is none.
        group: key of the group of runs that are averaged; empty for a number of the paper.
        column: its name in the curves.
        epoch: the epoch of the number; None for the epoch that runs report.
    """

    text: str
    value: float = nan
    group: str = ""
    column: str = ""
    epoch: int | None = None


@dataclass(frozen=True)
class ShownTable:
    """A table: a label and a number for each heading, in every row."""

    name: str
    title: str
    headings: list[str]
    rows: list[tuple[str, list[Shown]]]
    notes: list[str]


def shown_tables(kept: KeptRuns) -> list[ShownTable]:
    """The declared tables that have runs.

    Args:
        kept: the kept runs.

    Returns:
        The tables. If a run has not reached the epoch of a column, the number is "not reached".
    """
    numbers = load_numbers(kept.settings, kept.declaration)
    tables = []
    for name, selection in kept.selections.items():
        table = kept.declaration.tables[name]
        cells = [(columns, cell, title) for columns in table.columns for cell, title in columns.titles().items()]
        rows = [
            (label, [shown for of in cells for shown in _cell(table, row, *of[:2], numbers[name], selection)])
            for row, label in table.labels().items()
        ]
        headings = [heading for columns, cell, title in cells for heading in _headings(columns, cell, title)]
        notes = table_notes(kept.declaration, table, selection) + provenance_notes(table, selection)
        tables.append(ShownTable(name, table.heading(), headings, rows, notes))
    return tables


def _headings(columns: Columns, cell: Cell, title: str) -> list[str]:
    named = title if cell.split == ORDERS else f"{title}, {cell.split}"
    theirs, ours = [f"{named}: theirs"] if columns.printed else [], [f"{named}: ours"] if columns.measured else []
    return theirs + ours if columns.printed else [named]


def _cell(table: Table, row: str, columns: Columns, cell: Cell, numbers: Numbers, selection: Selection) -> list[Shown]:
    shown = []
    if columns.printed:
        mean, std = numbers[row].cells[cell] if row in numbers else (nan, nan)
        shown.append(Shown(with_deviation(mean, std, columns.decimals), mean))
    if columns.measured:
        shown.append(_ours(table, row, columns, cell, selection))
    return shown


def _ours(table: Table, row: str, columns: Columns, cell: Cell, selection: Selection) -> Shown:
    runs = selection.rows[row]
    if not runs:
        return Shown(NOTHING)
    epoch = cell.epoch or final_epoch(table, selection)
    values = runs.values(cell.split, cell.metric, epoch)
    mean, std = float(values.mean()), float(values.std())
    if isnan(mean):
        return Shown(NOT_REACHED)
    column = cell.metric if cell.split == ORDERS else f"{cell.split}/{cell.metric}"
    return Shown(with_deviation(mean, std, columns.decimals), mean, group_key(runs.records[0]), column, epoch)
