"""The paper's tables beside our numbers, and a verdict on each claim, made only from the committed records."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.files import write_atomically
from reporting.look.palette import label
from reporting.records.declaration import VERDICTS, Cell, Declaration, Numbers
from reporting.records.kept_runs import KeptRuns
from reporting.records.selection import Selection
from reporting.records.statistics import POINTS, estimate, paired_difference
from reporting.tables.equal_fit import equal_fit_page
from reporting.tables.layout import DIFFERENCE, Line, lay_out
from reporting.tables.notes import table_notes
from reporting.text import markdown
from reporting.verdicts import decide_claim
from reporting.verdicts.verdict_page import verdict_page


def rebuild_tables(kept: KeptRuns) -> tuple[list[Path], list[str]]:
    """Rebuild the tables whose records are kept, and the verdicts; replace the files under <results>/tables/.

    Returns the files written, and a line for each table that is left out, with the command that makes its records.
    """
    declaration = kept.declaration
    texts: dict[str, str] = {}
    verdicts: list[dict[str, Any]] = []
    for name, selection in kept.selections.items():
        table = selection.table
        lines = list(_numbers(declaration, kept.numbers[name], selection))
        blocks = lay_out(table, lines, declaration.confidence)
        texts[f"{name}.csv"] = _csv(_tidy(lines))
        texts[f"{name}.md"] = markdown.page(table.heading(), blocks, table_notes(selection, declaration.confidence))
        verdicts += [decide_claim(kept, name, claim, row) for claim in table.claims for row in claim.rows]
    if verdicts:
        texts[f"{VERDICTS}.csv"] = _csv(pd.DataFrame(verdicts))
        texts[f"{VERDICTS}.md"] = verdict_page(declaration, pd.DataFrame(verdicts))

    if equal_fit := equal_fit_page(kept):
        texts["equal_fit.md"] = equal_fit

    for file, text in texts.items():
        write_atomically(kept.results / "tables" / file, text)
    return [kept.results / "tables" / file for file in texts], _left_out(kept)


def _numbers(declaration: Declaration, printed: Numbers, selection: Selection) -> Iterator[Line]:
    """Every number of each row, in full precision: the published ones, ours, and the differences to the baseline."""
    table = selection.table
    for row, text in table.labels().items():
        runs = selection.rows[row]
        for columns in table.columns:
            for cell in columns.titles():
                place = {"row": text, "kind": "level", "metric": cell.metric, "unit": columns.unit, "split": cell.split}
                place |= {"_cell": cell, "_decimals": columns.decimals}
                epoch = cell.epoch or table.epoch
                if columns.printed and row in printed:
                    mean, std, half_width = printed[row][cell]
                    ends = {"low": mean - half_width, "high": mean + half_width} if half_width else {}
                    yield place | {"source": "published", "epoch": epoch, "mean": mean, "std": std} | ends
                if columns.measured:
                    ours = estimate(runs.values(cell.split, cell.metric, epoch), declaration.confidence)
                    place |= {"source": "ours", "epoch": epoch if runs else None, "_of": len(runs)}
                    yield place | ours._asdict()
        if table.compared is not None and table.rows[row].select != table.baseline:
            yield from _differences(declaration, row, printed, selection)


def _differences(declaration: Declaration, row: str, printed: Numbers, selection: Selection) -> Iterator[Line]:
    """The differences of a row to the baseline: of the published means, and of ours, paired by seed."""
    table = selection.table
    assert table.compared is not None
    assert table.baseline is not None
    place = {"row": table.labels()[row], "kind": f"difference to {label(table.baseline)}", "metric": table.compared}
    place |= {"unit": "percentage points", "split": "test", "_cell": DIFFERENCE}
    baseline = next((name for name, other in table.rows.items() if other.select == table.baseline), None)
    theirs, reference = (printed.get(name, {}).get(Cell("test", table.compared)) for name in (row, str(baseline)))
    if theirs and reference:
        decimals = declaration.published_decimals - 2  # a percentage point is 0.01
        mean = round(POINTS * (theirs.mean - reference.mean), decimals)
        yield place | {"source": "published", "epoch": table.epoch, "mean": mean, "_decimals": decimals}
    runs = selection.rows[row]
    values, others = (one.values("test", table.compared, table.epoch) for one in (runs, selection.baseline))
    ours = estimate(POINTS * paired_difference(values, others), declaration.confidence)
    epoch = table.epoch if runs else None
    yield place | {"source": "ours", "epoch": epoch, "_of": len(runs), "_decimals": 2} | ours._asdict()


def _tidy(lines: list[Line]) -> pd.DataFrame:
    """The numbers as a table. It has no column for the epoch if no number has one."""
    frame = pd.DataFrame(lines).astype({"seeds": "Int64", "epoch": "Int64"})
    frame = frame.drop(columns=[key for key in frame if key.startswith("_")])
    frame.insert(4, "source", frame.pop("source"))
    return frame.drop(columns="epoch") if frame["epoch"].isna().all() else frame


def _csv(frame: pd.DataFrame) -> str:
    return frame.to_csv(index=False, lineterminator="\n")


def _left_out(kept: KeptRuns) -> list[str]:
    required = {name: table.experiment for name, table in kept.declaration.tables.items() if not table.optional}
    names = {message: [name for name in required if required[name] == one] for one, message in kept.missing.items()}
    return [f"left out: {', '.join(tables)}: {message}" for message, tables in names.items() if tables]
