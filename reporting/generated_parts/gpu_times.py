"""Times on a GPU, from results/benchmarks/gpu_maps.csv and gpu_layers.csv, which `make gpu` wrote."""

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import pandas as pd

from reporting.text.markdown import narrow, paragraph


def tabulate_gpu_times(root: Path, to_root: str, part: str) -> str:
    """A table of each kind of contender: time relative to the first, torch's own, in a column for each size.

    `part` is `maps` or `layers`. For layers each cell has the memory that a step allocates, too.
    """
    rows = pd.read_csv(root / f"results/benchmarks/gpu_{part}.csv")
    rows["size"] = [_size(row) for row in rows.to_dict("records")]
    measured = rows.dropna(subset=["median_ratio"])
    tables = [_table(kind, measured[measured["kind"] == kind]) for kind in measured["kind"].unique()]
    about, commits = rows.iloc[0], " and ".join(commit[:12] for commit in rows["commit"].unique())
    origin = (
        "Forward and backward: the median of rounds, with the lowest and the highest. A slow contender is called "
        f"three times, and the fastest call counts. {about['gpu']}; torch {about['torch']}, triton {about['triton']}; "
        f"commit {commits}. Repeat: `make gpu`."
    )
    return "\n\n".join([*tables, paragraph(origin)])


def _size(row: dict[Hashable, Any]) -> str:
    sides = [f"{row[name]:,}" for name in ("rows", "features", "classes") if name in row]
    return f"{' × '.join(sides)}, {row['dtype']}, scale {row['scale']:g}"


def _table(kind: str, rows: pd.DataFrame) -> str:
    cells = rows.assign(cell=[_cell(row) for row in rows.to_dict("records")])
    shown = cells.pivot(index="contender", columns="size", values="cell")
    shown = shown.loc[rows["contender"].unique(), rows["size"].unique()].fillna("–")
    shown.index.name = f"{kind}, relative to {rows['contender'].iloc[0]}"
    return narrow(shown.reset_index())


def _cell(row: dict[Hashable, Any]) -> str:
    median, lowest, highest = (
        f"{row[f'{name}_ratio']:,.{0 if row['median_ratio'] >= 20 else 1}f}" for name in ("median", "lowest", "highest")
    )
    memory = f", {row['memory_mib']:,.0f} MiB" if row["kind"] == "layer" else ""
    return f"{median} ({lowest}–{highest}){memory}"
