"""How a table is laid out in blocks that are narrow enough to read: theirs, ours, and the difference."""

import re
from collections.abc import Iterable
from typing import NamedTuple

import pandas as pd

from reporting.columns import Block, Column, differences, levels
from reporting.declaration import ORDERS, Cell, Columns, Declaration, Table
from reporting.number_formats import NOTHING, number
from reporting.palette import label


class _Shown(NamedTuple):
    """A cell of the declared columns, and the title of its lines."""

    columns: Columns
    cell: Cell
    title: str


class _Numbers:
    """The lines of a table for each cell: one line for each row, NaN if there is no number."""

    def __init__(self, rows: list[str], tidy: pd.DataFrame) -> None:
        self.rows = rows
        self._tidy = tidy.assign(epoch=tidy.get("epoch", pd.NA))
        ours = tidy[(tidy["kind"] == "level") & (tidy["source"] == "ours")]
        self._of = ours.groupby("row")["seeds"].max()

    def lines(self, source: str, **values: str) -> pd.DataFrame:
        found = self._tidy[self._tidy["source"] == source]
        for key, value in values.items():
            found = found[found[key] == value]
        return found.set_index("row").reindex(self.rows).join(self._of.rename("of"))

    def of(self, source: str, shown: _Shown) -> pd.DataFrame:
        return self.lines(source, split=shown.columns.split, column=shown.title, kind="level")


def lay_out(declaration: Declaration, table: Table, tidy: pd.DataFrame) -> list[Block]:
    """The blocks of a table.

    A metric that the paper prints has a block for each split and epoch. The block shows the paper's number, our number,
    the difference if both have the same epoch, and our numbers on other splits. Any other metric has a block with a
    column for each epoch, or for each split; metrics with only one column share a block. The differences to the
    baseline have their own block.
    """
    numbers = _Numbers(list(table.labels().values()), tidy)
    blocks = [
        (_block if len(groups) == 1 else _shared_block)(table, numbers, [shown for group in groups for shown in group])
        for groups in _together(_groups(table))
    ]
    if table.compared is not None:
        blocks.append(_compared(declaration, table, numbers))
    return blocks


def _groups(table: Table) -> list[list[_Shown]]:
    groups: dict[tuple[object, ...], list[_Shown]] = {}
    for metric in table.metrics():
        with_metric = [columns for columns in table.columns if metric in columns.metrics]
        main = next((columns.split for columns in with_metric if columns.printed and columns.measured), None)
        for columns in with_metric:
            for cell, title in columns.titles().items():
                if cell.metric != metric:
                    continue
                if columns.printed and columns.measured:
                    key: tuple[object, ...] = (metric, columns.split, cell.epoch)
                elif len(columns.epochs) > 1:
                    key = (metric, columns.split, "by epoch")
                else:
                    key = (metric, main, None)
                groups.setdefault(key, []).append(_Shown(columns, cell, title))
    return list(groups.values())


def _together(groups: list[list[_Shown]]) -> list[list[list[_Shown]]]:
    """Groups that share a block: consecutive groups with one column each, from the same declared columns."""
    shared: list[list[list[_Shown]]] = []
    for group in groups:
        before = shared[-1][-1] if shared else []
        single = len(group) == len(before) == 1 and not group[0].columns.printed
        if single and group[0].columns is before[0].columns:
            shared[-1].append(group)
        else:
            shared.append([group])
    return shared


def _block(table: Table, numbers: _Numbers, group: list[_Shown]) -> Block:
    """The block of one metric: the paper's number, our number and the difference; or a column for each epoch."""
    metric = table.metrics()[group[0].cell.metric]
    by_epoch = len(group[0].columns.epochs) > 1 and not group[0].columns.printed
    splits = {shown.columns.split for shown in group} - {ORDERS}
    columns = []
    for shown in group:
        place = f", {shown.columns.data or shown.columns.split}" if len(splits) > 1 else ""
        if by_epoch:
            columns.append(_levels(f"epoch {shown.cell.epoch}", numbers, "ours", shown))
            continue
        if shown.columns.printed:
            columns.append(_levels(f"theirs{place}", numbers, "published", shown))
        if shown.columns.measured:
            columns.append(_levels(f"ours{place}", numbers, "ours", shown))
        if shown.columns.printed and shown.columns.measured:
            columns.append(_difference(numbers, shown))
    split = f" on {min(splits)}" if len(splits) == 1 else ""
    end = " by epoch" if by_epoch else _epochs(numbers, group)
    return Block(_capitalised(f"{metric}{split}{end}"), numbers.rows, _not_empty(columns))


def _shared_block(table: Table, numbers: _Numbers, group: list[_Shown]) -> Block:
    """One column for each metric. A common start of all titles, as in "accuracy, many", moves to the heading."""
    titles = [table.metrics()[shown.cell.metric] for shown in group]
    begins = {title.partition(", ")[0] for title in titles}
    common = begins.pop() if len(begins) == 1 else "ours"
    titles = [title.removeprefix(f"{common}, ") for title in titles]
    split = group[0].columns.split
    place = "" if split == ORDERS else f" on {split}"
    columns = [_levels(title, numbers, "ours", shown) for title, shown in zip(titles, group, strict=True)]
    return Block(_capitalised(f"{common}{place}{_epochs(numbers, group)}"), numbers.rows, columns)


def _compared(declaration: Declaration, table: Table, numbers: _Numbers) -> Block:
    assert table.compared is not None
    assert table.baseline is not None
    baseline = label(table.baseline)
    theirs, ours = (numbers.lines(source, kind=f"difference to {baseline}") for source in ("published", "ours"))
    interval = f" [{declaration.confidence:.0%}]" if ours["low"].notna().any() else ""
    columns = [
        differences("theirs", theirs.assign(of=pd.NA), declaration.published_decimals - 2),  # a point is 0.01
        differences(f"ours{interval}", ours, 2),
    ]
    end = _said_epochs(theirs["epoch"], ours["epoch"])
    heading = f"{table.metrics()[table.compared]} − {baseline} on test, percentage points{end}"
    return Block(_capitalised(heading), numbers.rows, _not_empty(columns))


def _levels(title: str, numbers: _Numbers, source: str, shown: _Shown) -> Column:
    return levels(title, numbers.of(source, shown), shown.cell.metric, shown.columns.decimals)


def _difference(numbers: _Numbers, shown: _Shown) -> Column:
    """Our number minus the paper's; empty if their epochs differ."""
    theirs, ours = (numbers.of(source, shown) for source in ("published", "ours"))
    of_one_epoch = theirs["epoch"].isna() | ours["epoch"].isna() | (theirs["epoch"] == ours["epoch"])
    values = (ours["mean"] - theirs["mean"]).where(of_one_epoch.fillna(value=True).astype(bool))
    return Column("difference", [number(value, shown.columns.decimals, "+") for value in values])


def _not_empty(columns: Iterable[Column]) -> list[Column]:
    return [column for column in columns if set(column.cells) != {NOTHING}]


def _epochs(numbers: _Numbers, group: list[_Shown]) -> str:
    theirs, ours = (
        pd.concat([numbers.of(source, shown)["epoch"] for shown in group]) for source in ("published", "ours")
    )
    return _said_epochs(theirs, ours)


def _said_epochs(theirs: pd.Series, ours: pd.Series) -> str:
    theirs, ours = (sorted(set(epochs.dropna())) for epochs in (theirs, ours))
    if theirs and ours and theirs != ours:
        return f": theirs of epoch {_listed(theirs)}, ours of epoch {_listed(ours)}"
    return f", epoch {_listed(theirs or ours)}" if theirs or ours else ""


def _listed(epochs: list[int]) -> str:
    return " and ".join(map(str, epochs))


def _capitalised(text: str) -> str:
    """The text with a capital if it starts with a word; "q", "τ" and "chrF" stay unchanged."""
    return text[0].upper() + text[1:] if re.match(r"[a-z]{2,}\b", text) else text
