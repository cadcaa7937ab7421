"""Folders of results, made up for the tests: a declaration, the paper's numbers, and records."""

import re
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from reporting.records.kept_runs import KeptRuns
from reporting.tables import rebuild_tables
from tests.reporting.synthetic_records import keep_records, make_record

RESULTS = Path(__file__).resolve().parents[2] / "results"  # the project's own

SEEDS = (1, 2, 3, 4, 5)
WOBBLE = dict(zip(SEEDS, (-0.004, -0.002, 0.0, 0.002, 0.004), strict=True))
DECLARATIONS = Path(__file__).with_name("declarations")
SMALL = (DECLARATIONS / "small" / "tables.yaml").read_text("utf-8")


def small_records() -> Iterator[dict[str, Any]]:
    """Softmax wobbles around 0.800; SharMiX is half a point above it, seed by seed."""
    for seed in SEEDS:
        base = 0.8 + WOBBLE[seed]
        yield make_record("softmax", seed, test={"accuracy": base}, train={"accuracy": 0.893})
        yield make_record(
            "sharmix_learned",
            seed,
            test={"accuracy": base + 0.005, "sparsity": 0.2},
            train={"accuracy": 0.910 + WOBBLE[seed], "sparsity": 0.21},
            q=1.25,
            r=1.5,
        )
        yield make_record("entmax", seed, test={"accuracy": base}, alpha=1.5)


def short_record(name: str, seed: int, epochs: int, accuracy: float, augmentation: str = "none") -> dict[str, Any]:
    """Its accuracy is `accuracy` at the last of `epochs`, and less before."""
    settings = {"augmentation": augmentation}
    return make_record(name, seed, "images", {"accuracy": accuracy}, {"accuracy": 0.9}, epochs=epochs, data=settings)


def short_records(epochs: int = 4) -> Iterator[dict[str, Any]]:
    """Softmax reaches `epochs`, sparsemax four; the paper's table is of epoch six."""
    for seed in (1, 2, 3):
        yield short_record("softmax", seed, epochs, 0.499 + 0.002 * seed)
        yield short_record("softmax", seed, epochs, 0.6, augmentation="standard")
        yield short_record("sparsemax", seed, 4, 0.45)


def write_short(folder: Path) -> Path:
    """Runs that end after four of six epochs, and another experiment."""
    keep_records(folder, list(short_records()), "images")
    keep_records(folder, [make_record("softmax", 1, "images_lt")], "images_lt")
    return shutil.copytree(DECLARATIONS / "short", folder, dirs_exist_ok=True)


def loaded(folder: Path, **allowed: bool) -> KeptRuns:
    """The kept runs of a folder that also holds its declaration."""
    return KeptRuns.load(folder, folder, **allowed)


def rebuild(results: Path, **allowed: bool) -> Path:
    """Rebuild the tables, and return their folder."""
    files, _ = rebuild_tables(loaded(results, **allowed))
    return files[0].parent


def both(folder: Path) -> tuple[str, ...]:
    """Options of a command for a folder that also holds its declaration."""
    return "--results", str(folder), "--settings", str(folder)


def line(frame: pd.DataFrame, **values: Any) -> pd.Series:
    """The one line of a table that has these values."""
    for key, value in values.items():
        frame = frame[frame[key] == value]
    assert len(frame) == 1
    return frame.iloc[0]


def cells_of(results: Path, name: str) -> dict[str, dict[str, str]]:
    """Cells of a Markdown table by row, then by the heading of its block and the title of its column.

    The title of our column beside a published one has the published one's start: "accuracy, ours".
    """
    page = (results / f"tables/{name}.md").read_text("utf-8")
    title, *blocks = re.split(r"^## ", page, flags=re.MULTILINE)
    cells: dict[str, dict[str, str]] = {}
    for block in blocks or [title]:
        heading = f"{block.splitlines()[0]} | " if blocks else ""
        lines = [row.split("|")[1:-1] for row in block.splitlines() if row.startswith("|")]
        (_, *titles), _, *rows = [[cell.strip() for cell in line] for line in lines]
        for left, right in pairwise(range(len(titles))):
            if titles[left].endswith("theirs") and titles[right].startswith("ours"):
                titles[right] = titles[left].removesuffix("theirs") + titles[right]
        for row, *texts in rows:
            named = zip((f"{heading}{column}" for column in titles), texts, strict=True)
            cells.setdefault(row, {}).update(named)
    return cells
