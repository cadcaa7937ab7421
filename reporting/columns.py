"""The columns of a table in the form for readers: texts, and the best text of each column."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import pandas as pd

from experiments.metric_catalogue import metric
from reporting.number_formats import NOT_REACHED, NOTHING, as_printed, number, over_seeds, with_deviation, with_interval


class Column(NamedTuple):
    """A column: its title, a text for each row, and the rows whose text is the best of the column."""

    title: str
    cells: list[str]
    best: frozenset[int] = frozenset()


class Block(NamedTuple):
    """Columns below one heading; `rows` are the labels of their rows."""

    heading: str
    rows: list[str]
    columns: list[Column]


def levels(title: str, lines: pd.DataFrame, name: str, decimals: int) -> Column:
    """A column of means with their standard deviations; of the means over most seeds, the best is marked.

    `lines` has one line for each row: `mean`, `std`, `seeds`, `epoch` and `of`, the seeds of the whole row; NaN if
    there is no number. A line without seeds is of the paper: `low` and `high` are the ends of a range that it prints.
    The metric's `name` says whether more is better.
    """
    comparable = lines["mean"].where(lines["seeds"].isna() | (lines["seeds"] == lines["seeds"].max()))
    means = [number(mean, decimals) for mean in comparable]
    return Column(title, _texts(lines, lambda line: _level(line, decimals)), _best(comparable, means, name))


def differences(title: str, lines: pd.DataFrame, decimals: int) -> Column:
    """A column of differences with their intervals; `lines` also has `low` and `high`, the ends of the interval."""
    return Column(
        title, _texts(lines, lambda line: with_interval(line["mean"], line["low"], line["high"], decimals, "+"))
    )


def _texts(lines: pd.DataFrame, write: Callable[[pd.Series], str]) -> list[str]:
    return [write(line) + _fewer(line) for _, line in lines.iterrows()]


def _level(line: pd.Series, decimals: int) -> str:
    if pd.isna(line["mean"]) and pd.notna(line["epoch"]):
        return NOT_REACHED
    if pd.isna(line["seeds"]) and pd.notna(line["low"]):
        return as_printed(line["mean"], line["high"] - line["mean"], decimals)
    return with_deviation(line["mean"], line["std"], decimals)


def _fewer(line: pd.Series) -> str:
    known = pd.notna(line["mean"]) and pd.notna(line["seeds"]) and pd.notna(line["of"])
    return over_seeds(int(line["seeds"]), int(line["of"])) if known else ""


def _best(values: Iterable[float], shown: list[str], name: str) -> frozenset[int]:
    """The rows that show the best value; none if all rows show the same value."""
    best = {"more": max, "less": min, None: None}[metric(name).better]
    known = [(value, text) for value, text in zip(values, shown, strict=True) if text != NOTHING]
    if best is None or len({text for _, text in known}) < 2:
        return frozenset()
    text = best(known)[1]
    return frozenset(row for row, one in enumerate(shown) if one == text)
