"""How a table is laid out in blocks: published numbers beside ours, and the differences to the baseline."""

import re
from collections.abc import Sequence
from itertools import compress
from math import isnan, nan
from typing import Any

from reporting.look.palette import label
from reporting.records.declaration import ORDERS, Cell, Columns, Table
from reporting.records.statistics import Estimate, differ_from_zero
from reporting.text.columns import Block, Column
from reporting.text.number_formats import NOT_REACHED, NOTHING, as_printed, over_seeds, with_deviation, with_interval

Line = dict[str, Any]  # a number in a row of a table; the CSV leaves out the keys that begin with an underscore
DIFFERENCE = Cell("test", "difference to the baseline")  # beside the metric that is compared


def lay_out(table: Table, lines: Sequence[Line], confidence: float) -> list[Block]:
    """The blocks of a table. Columns without numbers are left out, and blocks without columns."""
    blocks = (_block(table, columns, lines, confidence) for columns in table.blocks())
    return [block for block in blocks if block.columns]


def _block(table: Table, declared: list[Columns], lines: Sequence[Line], confidence: float) -> Block:
    """A block. Its heading has what all columns share, and their titles have what differs."""
    words = {cell: _words(table, columns, cell) for columns in declared for cell in columns.titles()}
    kinds = [{*kind} - {None} for kind in zip(*words.values(), strict=True)]
    shared = [kind.pop() if len(kind) == 1 else "" for kind in kinds]
    compared = Cell("test", table.compared or "")
    titles = {}
    for cell, own in words.items():
        titles[cell] = ", ".join(word for word in own if word and word not in shared)
        if cell == compared:
            titles[DIFFERENCE] = f"− {label(table.baseline or {})}"
    found = {(line["_cell"], line["source"], line["row"]): line for line in lines if line["_cell"] in titles}
    theirs = any(source == "published" for _, source, _ in found)

    name, part, place, epoch = shared
    heading = ", ".join(filter(None, (name, part))) + (f" on {place}" if place else "")
    heading += ", ours" if table.printed() and not theirs else ""
    if epoch:
        heading += f", {epoch}"
    elif heading and any(own[-1] for own in words.values()):
        heading += " by epoch"
    if DIFFERENCE in titles:
        heading += f"; {words[compared][0]} {titles[DIFFERENCE]} in percentage points"

    rows = list(table.labels().values())
    columns = []
    for cell, title in titles.items():
        published, ours = ([found.get((cell, source, row)) for row in rows] for source in ("published", "ours"))
        columns += _columns(title, published, ours, theirs, confidence)
    return Block(_capitalised(heading.strip(", ")), rows, columns)


def _words(table: Table, columns: Columns, cell: Cell) -> tuple[str | None, ...]:
    """The words for a cell in titles: the metric and its part, as in "accuracy, many", the split, and the epoch."""
    name, _, part = columns.metrics[cell.metric].partition(", ")
    place = None if columns.split == ORDERS else columns.data or columns.split
    epoch = cell.epoch or table.epoch
    return name, part, place, f"epoch {epoch}" if epoch else ""


def _columns(
    title: str, published: list[Line | None], ours: list[Line | None], beside_theirs: bool, confidence: float
) -> list[Column]:
    """The published numbers and ours; differences that `differ_from_zero` are bold."""
    theirs, measured = ([_text(line) for line in lines] for lines in (published, ours))
    columns = [Column(", ".join(filter(None, (title, "theirs"))), theirs)] if {*theirs} != {NOTHING} else []
    if {*measured} == {NOTHING}:
        return columns
    said = "ours" if columns or not title else f"{title}, ours" if beside_theirs else title
    intervals = {row: line for row, line in enumerate(ours) if line and line["_cell"] == DIFFERENCE}
    if any(not isnan(line["low"]) for line in intervals.values()):
        said += f" [{confidence:.0%}]"
    estimates = [Estimate(*(line[name] for name in Estimate._fields)) for line in intervals.values()]
    bold = frozenset(compress(intervals, differ_from_zero(estimates, confidence)))
    return [*columns, Column(said, measured, bold)]


def _text(line: Line | None) -> str:
    if line is None:
        return NOTHING
    mean, low, high, decimals = line["mean"], line.get("low", nan), line.get("high", nan), line["_decimals"]
    if isnan(mean):
        return NOTHING if line["epoch"] is None or line["_cell"] == DIFFERENCE else NOT_REACHED
    seeds = over_seeds(line.get("seeds", 0), line.get("_of", 0))
    if line["_cell"] == DIFFERENCE:
        return with_interval(mean, low, high, decimals, "+") + seeds
    if line["source"] == "published" and not isnan(high):
        return as_printed(mean, high - mean, decimals)
    return with_deviation(mean, line["std"], decimals) + seeds


def _capitalised(text: str) -> str:
    """The text with a capital if it starts with a word; "q", "τ" and "chrF" stay unchanged."""
    return text[0].upper() + text[1:] if re.match(r"[a-z]{2,}\b", text) else text
