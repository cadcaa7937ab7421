"""Writes files so that a reader never sees an incomplete file."""

import csv
import io
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

UNFINISHED = ".unfinished"


def replace_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it to `path`. Missing folders are made.

    A process that is killed at any moment leaves either the old file or the new one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}-{os.getpid()}{UNFINISHED}")
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_atomically(path: Path, text: str) -> None:
    """Replace the file at `path` by `text` in UTF-8, completely or not at all."""
    replace_atomically(path, lambda file: file.write(text.encode()))


def write_rows(path: Path, rows: Sequence[Mapping[str, float]]) -> None:
    """Replace the CSV file at `path` by these rows, completely or not at all."""
    text = io.StringIO()
    columns = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, text.getvalue())
