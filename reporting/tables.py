"""The paper's tables beside our numbers, and a verdict on each claim, made only from the committed records."""

from collections.abc import Iterator
from dataclasses import asdict
from math import isnan
from pathlib import Path
from typing import Any

import pandas as pd

from reporting import latex, markdown
from reporting.declaration import VERDICTS, Cell, Columns, Declaration, Numbers, Table, load_numbers
from reporting.kept_runs import KeptRuns
from reporting.layout import lay_out
from reporting.notes import provenance_notes, reading_notes, table_notes
from reporting.output_files import replace_files
from reporting.palette import label
from reporting.selection import Selection, final_epoch
from reporting.statistics import POINTS, estimate, paired_difference
from reporting.verdict_page import verdict_page
from reporting.verdicts import decide_claims


def rebuild_tables(kept: KeptRuns) -> tuple[list[Path], list[str]]:
    """Rebuild the tables whose records are kept, and the verdicts; replace the files under <results>/tables/.

    Returns the files written, and a line for each table that is left out, with the command that makes its records, and
    for each file that was removed.
    """
    declaration = kept.declaration
    numbers = load_numbers(kept.settings, declaration)
    texts: dict[str, str] = {}
    verdicts: list[dict[str, Any]] = []
    for name, selection in kept.selections.items():
        table = declaration.tables[name]
        tidy = _tidy(declaration, table, numbers[name], selection)
        blocks = lay_out(declaration, table, tidy)
        notes = table_notes(declaration, table, selection) + reading_notes(blocks)
        provenance = provenance_notes(table, selection)
        texts[f"{name}.csv"] = _csv(tidy.drop(columns="column"))
        texts[f"{name}.md"] = markdown.page(table.heading(), blocks, notes + provenance)
        texts[f"{name}.tex"] = latex.document(name, table.title, blocks, notes, provenance)
        verdicts += decide_claims(declaration, name, numbers[name], selection)
    texts[f"{VERDICTS}.csv"] = _csv(pd.DataFrame(verdicts))
    texts[f"{VERDICTS}.md"] = verdict_page(declaration, pd.DataFrame(verdicts))

    folder = kept.results / "tables"
    files = {file: text.encode() for file, text in texts.items()}
    own = {f"{name}.{end}" for name in [*declaration.tables, VERDICTS] for end in ("csv", "md", "tex")}
    gone = replace_files(folder, files, own)
    removed = [f"removed: {path}, which has no records" for path in gone]
    return [folder / file for file in texts], _left_out(kept) + removed


def _tidy(declaration: Declaration, table: Table, numbers: Numbers, selection: Selection) -> pd.DataFrame:
    """One line for each number of each row, in full precision; `column` is the title of its column."""
    lines: list[dict[str, Any]] = []
    for row, text in table.labels().items():
        runs = selection.rows[row]
        last = final_epoch(table, selection) if runs else None
        for columns, cell, title in _cells_by_metric(table):
            start = {"row": text, "column": title, "kind": "level", "metric": cell.metric, "unit": columns.unit}
            if columns.printed and row in numbers:
                mean, std, half_width = numbers[row].cells[cell]
                place = {"source": "published", "split": cell.split, "epoch": cell.epoch or table.epoch}
                ends = {"low": mean - half_width, "high": mean + half_width} if half_width else {}
                lines.append(start | place | {"mean": mean, "std": std} | ends)
            if not columns.measured:
                continue
            epoch = (cell.epoch or last) if runs else None
            ours = estimate(runs.values(cell.split, cell.metric, epoch), declaration.confidence)
            lines.append(start | {"source": "ours", "split": cell.split, "epoch": epoch} | asdict(ours))
        if table.compared is not None:
            lines += [{"row": text} | line for line in _differences(declaration, table, row, numbers, selection, last)]
    tidy = pd.DataFrame(lines).astype({"seeds": "Int64", "epoch": "Int64"})
    return tidy.drop(columns="epoch") if tidy["epoch"].isna().all() else tidy


def _cells_by_metric(table: Table) -> Iterator[tuple[Columns, Cell, str]]:
    for metric in table.metrics():
        for columns in table.columns:
            for cell, title in columns.titles().items():
                if cell.metric == metric:
                    yield columns, cell, title


def _differences(
    declaration: Declaration, table: Table, row: str, numbers: Numbers, selection: Selection, epoch: int | None
) -> Iterator[dict[str, Any]]:
    assert table.compared is not None
    column = f"{table.metrics()[table.compared]} − {_baseline(table)}"
    start = {"column": column, "kind": f"difference to {_baseline(table)}", "metric": table.compared}
    start |= {"unit": "percentage points", "split": "test"}
    if row in numbers and not isnan(numbers[row].difference):
        yield start | {"source": "published", "epoch": table.epoch, "mean": numbers[row].difference}
    values, baseline = (
        runs.values("test", table.compared, epoch) for runs in (selection.rows[row], selection.baseline)
    )
    ours = estimate(POINTS * paired_difference(values, baseline), declaration.confidence)
    yield start | {"source": "ours", "epoch": epoch} | asdict(ours)


def _baseline(table: Table) -> str:
    assert table.baseline is not None
    return label(table.baseline)


def _csv(frame: pd.DataFrame) -> str:
    return frame.to_csv(index=False, lineterminator="\n")


def _left_out(kept: KeptRuns) -> list[str]:
    lines = []
    for experiment, message in kept.missing.items():
        tables = {name: table for name, table in kept.declaration.tables.items() if table.experiment == experiment}
        if names := [name for name, table in tables.items() if not table.optional]:
            lines.append(f"left out: {', '.join(names)}: {message}")
    return lines
