"""Times on a GPU, from results/benchmarks/gpu_maps.csv and gpu_layers.csv, which `make gpu` wrote."""

from pathlib import Path

import pandas as pd

from benchmarks.contenders import BASELINES
from reporting.markdown import paragraph


def tabulate_gpu_times(root: Path, to_root: str, part: str) -> str:
    """A table of each kind of contender: time relative to torch's baseline, in a column for each size.

    Args:
        root, to_root: of the repository.
        part: `maps` or `layers`.
    """
    rows = pd.read_csv(root / f"results/benchmarks/gpu_{part}.csv")
    rows["size"] = [_size(row) for row in rows.to_dict("records")]
    measured = rows.dropna(subset=["median_ratio"])
    tables = [_table(kind, measured[measured["kind"] == kind]) for kind in measured["kind"].unique()]
    about = rows.iloc[0]
    origin = (
        f"Forward and backward; the median of rounds. {about['gpu']}; torch {about['torch']}, "
        f"triton {about['triton']}; commit {about['commit'][:12]}. Repeat: `make gpu`."
    )
    return "\n\n".join([*tables, paragraph(origin)])


def _size(row: dict[str, object]) -> str:
    sides = [f"{row[name]:,}" for name in ("rows", "features", "classes") if name in row]
    return f"{' × '.join(sides)}, {row['dtype']}"


def _table(kind: str, rows: pd.DataFrame) -> str:
    ratios = rows.pivot(index="contender", columns="size", values="median_ratio")
    ordered = ratios.loc[rows["contender"].unique(), rows["size"].unique()]
    shown = ordered.map(lambda ratio: f"{ratio:,.{0 if ratio >= 20 else 1}f}", na_action="ignore")
    shown.index.name = f"{kind}, relative to {BASELINES[kind]}"
    return str(shown.fillna("–").reset_index().to_markdown(index=False, disable_numparse=True))
