"""The paper's tables beside ours, and a verdict on each claim, from the committed records alone."""

import re
from collections.abc import Iterator
from dataclasses import asdict
from math import isnan
from pathlib import Path
from typing import Any

import pandas as pd

from reporting.declaration import ORDERS, VERDICTS, Cell, Columns, Declaration, Numbers, Table, load_numbers
from reporting.kept_runs import KeptRuns
from reporting.notes import table_notes
from reporting.number_formats import NOT_REACHED, NOTHING, number, over_seeds, with_deviation, with_interval
from reporting.palette import label
from reporting.selection import Selection, final_epoch
from reporting.statistics import POINTS, estimate, paired_difference
from reporting.verdicts import NOT_REACHED_RULE, RULE, Verdict, decide_claims
from reporting.whole_folders import replace_files

# Characters that pdflatex cannot typeset; pandas escapes the others.
LATEX = {"±": r"$\pm$", "−": "$-$", "α": r"$\alpha$", "τ": r"$\tau$", "–": "--"}


def rebuild_tables(kept: KeptRuns) -> tuple[list[Path], list[str]]:
    """Rebuild the declared tables whose records are kept, and the verdicts, in place of those under <results>/tables/.

    Args:
        kept: the kept runs.

    Returns:
        The files written: Markdown, CSV and LaTeX of each table, Markdown and CSV of the verdicts. And what is left
        out: a line for each experiment without records, with the command that makes them, and a line for each file
        that was removed because its table has no records.

    Raises:
        TableError: for published numbers that tables.yaml names and the paper does not have.
        RecordError: for a run that did not measure what a table shows.
    """
    declaration = kept.declaration
    numbers = load_numbers(kept.results, declaration)
    texts: dict[str, str] = {}
    verdicts: list[dict[str, Any]] = []
    for name, selection in kept.selections.items():
        table = declaration.tables[name]
        tidy = _tidy(declaration, table, numbers[name], selection)
        wide = _wide(declaration, table, tidy)
        notes = table_notes(declaration, table, selection)
        texts[f"{name}.csv"] = _csv(tidy.drop(columns="column"))
        texts[f"{name}.md"] = _markdown(table.title, wide, notes)
        texts[f"{name}.tex"] = _latex(name, table.title, wide, notes)
        verdicts += decide_claims(declaration, name, numbers[name], selection)
    texts[f"{VERDICTS}.csv"] = _csv(pd.DataFrame(verdicts))
    texts[f"{VERDICTS}.md"] = _verdicts(
        declaration, pd.DataFrame(verdicts, columns=["table"] if not verdicts else None)
    )

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
                mean, std = numbers[row].cells[cell]
                place = {"source": "published", "split": cell.split, "epoch": cell.epoch or table.epoch}
                lines.append(start | place | {"mean": mean, "std": std})
            if not columns.measured:
                continue
            epoch = (cell.epoch or last) if runs else None
            ours = estimate(runs.values(cell.split, cell.metric, epoch), declaration.bootstrap)
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
    ours = estimate(POINTS * paired_difference(values, baseline), declaration.bootstrap)
    yield start | {"source": "ours", "epoch": epoch} | asdict(ours)


def _baseline(table: Table) -> str:
    assert table.baseline is not None
    return label(table.baseline)


def _wide(declaration: Declaration, table: Table, tidy: pd.DataFrame) -> pd.DataFrame:
    """The table as people read it: one line for each row, one group of columns for each source."""
    published = "published" if table.epoch is None else f"published, epoch {table.epoch}"
    wide: dict[tuple[str, str], pd.Series] = {}
    for source, group, plain in (("published", published, "test"), ("ours", "ours", ORDERS)):
        lines = tidy[tidy["source"] == source].set_index("row")
        levels, points = lines[lines["kind"] == "level"], lines[lines["kind"] != "level"]
        of = levels.groupby("row")["seeds"].max().rename("of")
        levels, points = levels.join(of), points.join(of)
        for columns in table.columns:
            if not (columns.printed if source == "published" else columns.measured):
                continue
            name = group if columns.split == plain else f"{group}, {columns.split}"
            for title in columns.titles().values():
                shown = levels[(levels["split"] == columns.split) & (levels["column"] == title)]
                wide[name, title] = shown.apply(_mean_and_std, axis="columns", decimals=columns.decimals)
        if source == "ours":
            wide["", "seeds"] = levels["of"].groupby("row").first()
            if table.epoch is not None:
                wide["", "epoch of ours"] = lines.groupby("row")["epoch"].max()
        if len(points):
            heading = points["column"].iloc[0]
            if source == "ours":
                place = f"ours, test: {heading}", f"points [{declaration.bootstrap.confidence:.0%}]"
                wide[place] = points.apply(_with_interval, axis="columns", decimals=2)
            else:
                decimals = declaration.published_decimals - 2  # a point is 0.01
                cells = points["mean"].map(lambda mean, decimals=decimals: number(mean, decimals, "+"))
                wide[group, f"{heading} points"] = cells
    frame = pd.DataFrame(wide).reindex(list(table.labels().values())).astype(object)
    return frame.where(frame.notna(), NOTHING)


def _mean_and_std(line: pd.Series, decimals: int) -> str:
    if isnan(line["mean"]) and pd.notna(line.get("epoch")):
        return NOT_REACHED
    return with_deviation(line["mean"], line["std"], decimals) + _fewer_seeds(line)


def _with_interval(line: pd.Series, decimals: int, sign: str = "+") -> str:
    if isnan(line["mean"]):
        return NOTHING
    return with_interval(line["mean"], line["low"], line["high"], decimals, sign) + _fewer_seeds(line)


def _fewer_seeds(line: pd.Series) -> str:
    return over_seeds(int(line["seeds"]), int(line["of"])) if pd.notna(line["seeds"]) else ""


def _csv(frame: pd.DataFrame) -> str:
    return frame.to_csv(index=False, lineterminator="\n")


def _markdown(title: str, wide: pd.DataFrame, notes: list[str]) -> str:
    flat = wide.set_axis([" ".join(names).strip() for names in wide.columns], axis="columns")
    body = flat.to_markdown(disable_numparse=True)
    return "\n\n".join([f"# {title}", body, *notes]) + "\n"


def _latex(name: str, title: str, wide: pd.DataFrame, notes: list[str]) -> str:
    text = wide.rename_axis(index=None).to_latex(
        escape=True, caption=re.sub(r"([&%$#_])", r"\\\1", title), label=f"tab:{name}", multicolumn_format="c"
    )
    for character, command in LATEX.items():
        text = text.replace(character, command)
    return "".join(f"% {note}\n" for note in notes) + text


def _verdicts(declaration: Declaration, verdicts: pd.DataFrame) -> str:
    parts = ["# Verdicts on the paper's claims", RULE]
    for name, lines in verdicts.groupby("table", sort=False):
        parts.append(f"## {declaration.tables[str(name)].title}")
        if Verdict.NOT_REACHED in set(lines["test_verdict"]):
            parts.append(NOT_REACHED_RULE.strip())
        cells = lines.apply(_verdict_line, axis="columns", of=len(declaration.tables[str(name)].seeds))
        parts.append(cells.to_markdown(index=False, disable_numparse=True))
    return "\n\n".join(parts) + "\n"


def _verdict_line(line: pd.Series, of: int) -> pd.Series:
    difference = line["kind"] == "difference"
    decimals, sign, unit = (2, "+", " points") if difference else (3, "-", "")
    cells = {
        "claim": line["claim"],
        "row": line["row"],
        "published": number(line["published"], decimals, sign) + unit,
    }
    for split in ("test", "train"):
        ours = pd.Series({key: line[f"{split}_{key}"] for key in ("mean", "low", "high", "seeds")} | {"of": of})
        cells[f"ours, {split} [interval]"] = _with_interval(ours, decimals, sign)
        cells[f"verdict on {split}"] = line[f"{split}_verdict"]
    return pd.Series(cells | {"nearer split": line["nearer_split"]})


def _left_out(kept: KeptRuns) -> list[str]:
    lines = []
    for experiment, message in kept.missing.items():
        names = [name for name, table in kept.declaration.tables.items() if table.experiment == experiment]
        lines.append(f"left out: {', '.join(names)}: {message}")
    return lines
