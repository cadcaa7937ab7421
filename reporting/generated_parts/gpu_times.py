"""Times on a GPU, from results/benchmarks/gpu_PART.csv, which `make gpu` wrote."""

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import pandas as pd

from reporting.text.markdown import narrow, paragraph


def tabulate_gpu_times(root: Path, to_root: str, part: str) -> str:
    """Tables of a part of `make gpu`, one for each dtype, scale and GPU, with a column for each size.

    Times are relative to the first contender, torch's own. For layers and attention each cell has the memory that a
    step allocates, too. The last row is the bound, where it was recorded.
    """
    path = root / f"results/benchmarks/gpu_{part}.csv"
    if not path.exists():
        return f"Not yet measured: `make gpu` writes {path.relative_to(root)}."
    rows = pd.read_csv(path)
    rows["size"] = [_size(row) for row in rows.to_dict("records")]
    rows["inputs"] = [f"{row.dtype}, scale {row.scale:g}, {row.gpu.split()[1]}" for row in rows.itertuples()]
    measured = rows.dropna(subset=["median_ratio"])
    about, runs = rows.iloc[0], rows[["gpu", "commit"]].drop_duplicates().to_numpy()
    where = ", and ".join(f"{gpu} at commit {commit[:12]}" for gpu, commit in runs)
    origin = (
        "Forward and backward: the median of rounds, with the lowest and the highest. A slow contender is called "
        f"three times, and the fastest call counts. {where}; torch {about['torch']}, triton {about['triton']}. "
        "Repeat: `make gpu`."
    )
    tables = [_table(part, inputs) for inputs, part in measured.groupby("inputs", sort=False)]
    return "\n\n".join([*tables, paragraph(origin)])


def _size(row: dict[Hashable, Any]) -> str:
    return " × ".join(f"{row[name]:,}" for name in ("heads", "rows", "length", "features", "classes") if name in row)


def _table(rows: pd.DataFrame, inputs: Hashable) -> str:
    cells = rows.assign(cell=[_cell(row) for row in rows.to_dict("records")])
    shown = cells.pivot(index="contender", columns="size", values="cell")
    shown = shown.loc[rows["contender"].unique(), rows["size"].unique()].fillna("–")
    if "bound_microseconds" in rows:
        first = rows.drop_duplicates("size").set_index("size")
        bounds = first["bound_microseconds"] / first["median_microseconds"]
        shown.loc["bound"] = [f"{bounds[size]:.2f}" for size in shown]
    shown.index.name = f"{rows['kind'].iloc[0]}, {inputs}"
    return narrow(shown.reset_index())


def _cell(row: dict[Hashable, Any]) -> str:
    median, lowest, highest = (
        f"{row[f'{name}_ratio']:,.{0 if row['median_ratio'] >= 20 else 1}f}" for name in ("median", "lowest", "highest")
    )
    memory = f", {row['memory_mib']:,.0f} MiB" if row["kind"] in ("layer", "attention") else ""
    return f"{median} ({lowest}–{highest}){memory}"
