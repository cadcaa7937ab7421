"""A table in the form for readers: blocks of columns with a text for each row."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

T = TypeVar("T")


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


def packed(items: Iterable[T], size: Callable[[T], int], room: int) -> list[list[T]]:
    """The items in their order in groups that fit a room; an item that fits none has a group of its own."""
    groups: list[list[T]] = []
    left = 0
    for item in items:
        left -= size(item)
        if not groups or left < 0:
            groups.append([])
            left = room - size(item)
        groups[-1].append(item)
    return groups
