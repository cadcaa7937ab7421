"""Tables in Markdown, narrow enough to read on a page."""

import re
from collections.abc import Iterable, Sequence
from textwrap import fill

import pandas as pd
from tabulate import tabulate

from reporting.text.columns import Block

WIDTH = 110  # characters of a line


def page(title: str, blocks: Sequence[Block], notes: Iterable[str], corner: str = "activation") -> str:
    """A page with the blocks of a table, each below its heading, and the notes under them."""
    parts = [f"# {title}"]
    for block in blocks:
        parts += [f"## {block.heading}"] if block.heading else []
        parts.append(pipe_table(block, corner))
    return "\n\n".join([*parts, *map(paragraph, notes)]) + "\n"


def pipe_table(block: Block, corner: str = "activation") -> str:
    """The block as a table, with the bold texts of its columns; `corner` is the title of the rows' labels."""
    columns = (
        [f"**{text}**" if row in column.bold else text for row, text in enumerate(column.cells)]
        for column in block.columns
    )
    titles, sides = [column.title for column in block.columns], [_side(column.cells) for column in block.columns]
    rows = zip(block.rows, *columns, strict=True)
    return tabulate(rows, [corner, *titles], "pipe", disable_numparse=True, colalign=["left", *sides])


def _side(texts: Sequence[str]) -> str:
    """Numbers stand on the right, and words, which may take several lines, on the left."""
    return "right" if any(re.match(r"[+−]?\d", text) for text in texts) else "left"


def narrow(frame: pd.DataFrame) -> str:
    """A table of texts. If it is too wide, it is split into several tables below each other.

    Each table begins with the columns that name the rows: as many columns as distinguish all rows.
    """
    texts = frame.astype(str)
    keys = key_columns(texts)
    tables: list[list[str]] = [keys]
    for name in list(texts)[len(keys) :]:
        if tables[-1] != keys and sum(_width(texts[one]) for one in [*tables[-1], name]) > WIDTH:
            tables.append(keys)
        tables[-1] = [*tables[-1], name]
    return "\n\n".join(texts[columns].to_markdown(index=False, disable_numparse=True) for columns in tables)


def key_columns(texts: pd.DataFrame) -> list[str]:
    """As many of the first columns as distinguish all rows; the first one if even all columns do not."""
    names = (list(texts)[: number + 1] for number in range(texts.shape[1]))
    return next((columns for columns in names if not texts.duplicated(columns).any()), list(texts)[:1])


def _width(column: pd.Series) -> int:
    """Width of a column with its border, in characters; tabulate adds two beside a title."""
    return max(len(str(column.name)) + 2, column.str.len().max()) + 3


def paragraph(text: str) -> str:
    """The text, broken into short lines."""
    return fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)
