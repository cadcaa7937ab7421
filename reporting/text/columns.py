"""A table in the form for readers: blocks of columns with a text for each row."""

from typing import NamedTuple


class Column(NamedTuple):
    """A column: its title, a text for each row, and the rows whose text is bold."""

    title: str
    cells: list[str]
    bold: frozenset[int] = frozenset()


class Block(NamedTuple):
    """Columns below one heading; `rows` are the labels of their rows."""

    heading: str
    rows: list[str]
    columns: list[Column]
