"""A benchmark's numbers, with their origin, in a CSV file with a page beside it."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from rich.console import Console
from rich.markdown import Markdown

from benchmarks.harness import Row, with_range, write_csv
from experiments.files import write_atomically
from experiments.identity import code_of
from experiments.machine import environment


def provenance(found: Mapping[str, Any], source: Mapping[str, Any]) -> Row:
    """The columns that say in which environment, and by which code, a row was measured, as records name them."""
    return {
        "backend": found["backend"]["code"],
        "vectors": found["backend"]["vectors"],
        **{name: found["hardware"][name] for name in ("processor", "cores", "accelerator")},
        "python": found["python"],
        **{name: found["packages"][name] for name in ("torch", "entmax")},
        **{name: source[name] for name in ("commit", "dirty")},
    }


def origin(data: pd.DataFrame, command: str, *packages: str) -> str:
    """The machine and the versions of the rows in a sentence, and the command that repeats the measurement."""
    row = data.iloc[0]
    versions = ", ".join(f"{name} {row[name]}" for name in ("torch", *packages))
    dirty = ", with uncommitted changes" if row["dirty"] else ""
    return (
        f"{row['processor']}, {row['cores']} cores, {row['vectors']}; backend {row['backend']}; {versions}; "
        f"commit {str(row['commit'])[:12]}{dirty}. Repeat: `{command}`."
    )


def with_ranges(data: pd.DataFrame, name: str) -> list[str]:
    """The medians of a quantity with their ranges."""
    return [with_range(*row) for row in data[[f"{part}_{name}" for part in ("median", "lowest", "highest")]].to_numpy()]


def publish(benchmark: str, rows: Iterable[Row], path: Path, page: Callable[[pd.DataFrame], str]) -> None:
    """Write a benchmark's rows and provenance into a CSV file, and beside it their page, which is also printed.

    A row that was measured elsewhere has its own provenance.
    """
    code = code_of({"_target_": f"benchmarks.{benchmark}.main"})
    here = provenance(environment(torch.device("cpu")), code)  # before an iterator begins: code may change meanwhile
    write_csv([row | here | row for row in rows], path)  # its own columns first
    text = page(pd.read_csv(path))
    write_atomically(path.with_suffix(".md"), text)
    Console().print(Markdown(text))
    Console().print(f"Written: {path}, and its page beside it")
