"""The paper's tables beside ours, and a verdict per claim, from the committed records alone."""

import argparse
from collections.abc import Iterable
from dataclasses import asdict
from math import isnan
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.files import write_atomically
from reporting.declaration import (
    Declaration,
    Numbers,
    Table,
    TableError,
    load_declaration,
    load_numbers,
)
from reporting.palette import label
from reporting.records import RecordError
from reporting.selection import (
    Selection,
    describe_code,
    refuse_missing_seeds,
    refuse_mixed_code,
    select_runs,
)
from reporting.statistics import POINTS, estimate, metric_by_seed, paired_difference
from reporting.verdicts import RULE, decide_claims

NOTHING = "–"  # a cell for which there is no number
# What pdflatex does not typeset as it stands, once pandas has escaped the rest.
LATEX = {"±": r"$\pm$", "−": "$-$", "α": r"$\alpha$", "τ": r"$\tau$", "–": "--"}


def rebuild(results: Path, *, allow_missing_seeds: bool = False, allow_mixed_code: bool = False) -> list[Path]:
    """Rebuild every declared table and the verdicts under <results>/tables/.

    Args:
        results: folder that holds tables.yaml, published/ and records/.
        allow_missing_seeds: build from the runs there are where declared seeds are missing.
        allow_mixed_code: build from records of different code or of uncommitted changes.

    Returns:
        The files written: Markdown, CSV and LaTeX of each table, Markdown and CSV of the verdicts.

    Raises:
        TableError: for a wrong declaration, or records that are missing, mixed or ambiguous.
        RecordError: for records that cannot be read.
    """
    declaration = load_declaration(results)
    numbers = load_numbers(results, declaration)
    selections = {name: select_runs(t, results) for name, t in declaration.tables.items()}
    if not allow_missing_seeds:
        refuse_missing_seeds(selections)
    if not allow_mixed_code:
        refuse_mixed_code(selections)

    texts: dict[str, str] = {}
    verdicts: list[dict[str, Any]] = []
    for name, table in declaration.tables.items():
        tidy = _tidy(declaration, table, numbers[name], selections[name])
        wide = _wide(declaration, table, tidy)
        notes = _notes(declaration, table, selections[name])
        texts[f"{name}.csv"] = _csv(tidy)
        texts[f"{name}.md"] = _markdown(table.title, wide, notes)
        texts[f"{name}.tex"] = _latex(name, table.title, wide, notes)
        verdicts += decide_claims(declaration, name, numbers[name], selections[name])
    texts["verdicts.csv"] = _csv(pd.DataFrame(verdicts))
    texts["verdicts.md"] = _verdicts(declaration, pd.DataFrame(verdicts))

    folder = results / "tables"
    for file, text in texts.items():  # only now, so that an error leaves the old tables whole
        write_atomically(folder / file, text)
    return [folder / file for file in texts]


def _tidy(declaration: Declaration, table: Table, numbers: Numbers, selection: Selection) -> pd.DataFrame:
    """One line per row and number, in full precision."""
    lines: list[dict[str, Any]] = []
    for row, runs in selection.rows.items():
        start = {"row": label(table.rows[row].select)}
        for metric in declaration.metrics:
            level = {**start, "kind": "level", "metric": metric, "unit": "fraction"}
            if row in numbers:
                mean, std = numbers[row][metric]
                printed = {"source": "published", "split": "test", "mean": mean, "std": std}
                lines.append(level | printed)
            for split in ("test", "train"):
                ours = estimate(metric_by_seed(runs, split, metric), declaration.bootstrap)
                lines.append(level | {"source": "ours", "split": split} | asdict(ours))
        difference = paired_difference(
            metric_by_seed(runs, "test", declaration.compared),
            metric_by_seed(selection.baseline, "test", declaration.compared),
        )
        ours = estimate(POINTS * difference, declaration.bootstrap)
        kind = {"kind": f"difference to {label(table.baseline)}", "metric": declaration.compared}
        source = {"unit": "percentage points", "source": "ours", "split": "test"}
        lines.append(start | kind | source | asdict(ours))
    return pd.DataFrame(lines).astype({"seeds": "Int64"})


def _wide(declaration: Declaration, table: Table, tidy: pd.DataFrame) -> pd.DataFrame:
    """The table as people read it: a line per row, a group of columns per source."""
    columns: dict[tuple[str, str], pd.Series] = {}
    levels = tidy[tidy["kind"] == "level"].set_index("row")
    for group, source, split in (
        ("published", "published", "test"),
        ("ours, test", "ours", "test"),
        ("ours, train", "ours", "train"),
    ):
        for metric, title in declaration.metrics.items():
            wanted = (levels["source"] == source) & (levels["split"] == split)
            lines = levels[wanted & (levels["metric"] == metric)]
            columns[group, title] = lines.apply(_mean_and_std, axis="columns")
    differences = tidy[tidy["kind"] != "level"].set_index("row")
    columns["", "seeds"] = levels[levels["source"] == "ours"].groupby("row")["seeds"].max()
    compared = declaration.metrics[declaration.compared]
    group = f"ours, test: {compared} − {label(table.baseline)}"
    interval = f"points [{declaration.bootstrap.confidence:.0%}]"
    columns[group, interval] = differences.apply(_with_interval, axis="columns", decimals=2)
    rows = [label(row.select) for row in table.rows.values()]
    wide = pd.DataFrame(columns).reindex(rows).astype(object)
    return wide.where(wide.notna(), NOTHING)


def _number(value: float, decimals: int, sign: str = "-") -> str:
    # Rounded first: −0.001 at two decimals is 0.00, with no minus.
    text = f"{round(value, decimals) + 0.0:{sign}.{decimals}f}"
    return text.replace("-", "−")


def _mean_and_std(line: pd.Series) -> str:
    if isnan(line["mean"]):
        return NOTHING
    mean = _number(line["mean"], decimals=3)
    return mean if isnan(line["std"]) else f"{mean} ± {_number(line['std'], decimals=3)}"


def _with_interval(line: pd.Series, decimals: int, sign: str = "+") -> str:
    if isnan(line["mean"]):
        return NOTHING
    mean, low, high = (_number(line[key], decimals, sign) for key in ("mean", "low", "high"))
    return mean if isnan(line["low"]) else f"{mean} [{low}, {high}]"


def _notes(declaration: Declaration, table: Table, selection: Selection) -> list[str]:
    """What a reader needs to trust the table and to repeat it."""
    records = list(selection.records())
    hardware = (record["environment"]["hardware"] for record in records)
    software = ({"python": record["environment"]["python"]} | record["environment"]["packages"] for record in records)
    notes = [
        f"Mean ± standard deviation over seeds {', '.join(map(str, table.seeds))}; the difference "
        f"is paired by seed, with its percentile bootstrap interval "
        f"({declaration.bootstrap.confidence:.0%}, {declaration.bootstrap.resamples} resamples), which "
        "is narrower than its name says where seeds are few.",
        f"Code: {_distinct(map(describe_code, records))}.",
        f"Hardware: {_distinct(map(_pairs, hardware))}.",
        f"Software: {_distinct(map(_pairs, software))}.",
        f"Repeat: {table.repeat}",
    ]
    if selection.missing:
        notes.insert(0, f"Missing runs: {'; '.join(selection.missing)}.")
    return notes


def _pairs(facts: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in facts.items() if value is not None)


def _distinct(texts: Iterable[str]) -> str:
    return "; ".join(sorted(set(texts)))


def _csv(frame: pd.DataFrame) -> str:
    return frame.to_csv(index=False, lineterminator="\n")


def _markdown(title: str, wide: pd.DataFrame, notes: list[str]) -> str:
    flat = wide.set_axis([" ".join(names).strip() for names in wide.columns], axis="columns")
    body = flat.to_markdown(disable_numparse=True)
    return "\n\n".join([f"# {title}", body, *notes]) + "\n"


def _latex(name: str, title: str, wide: pd.DataFrame, notes: list[str]) -> str:
    text = wide.rename_axis(index=None).to_latex(
        escape=True, caption=title, label=f"tab:{name}", multicolumn_format="c"
    )
    for character, command in LATEX.items():
        text = text.replace(character, command)
    return "".join(f"% {note}\n" for note in notes) + text


def _verdicts(declaration: Declaration, verdicts: pd.DataFrame) -> str:
    parts = ["# Verdicts on the paper's claims", RULE]
    for name, table in declaration.tables.items():
        parts.append(f"## {table.title}")
        lines = verdicts[verdicts["table"] == name].apply(_verdict_line, axis="columns")
        parts.append(lines.to_markdown(index=False, disable_numparse=True))
    return "\n\n".join(parts) + "\n"


def _verdict_line(line: pd.Series) -> pd.Series:
    difference = line["kind"] == "difference"
    decimals, sign, unit = (2, "+", " points") if difference else (3, "-", "")
    cells = {
        "claim": line["claim"],
        "row": line["row"],
        "published": _number(line["published"], decimals, sign) + unit,
    }
    for split in ("test", "train"):
        ours = line[[f"{split}_mean", f"{split}_low", f"{split}_high"]]
        named = ours.set_axis(["mean", "low", "high"])
        cells[f"ours, {split} [interval]"] = _with_interval(named, decimals, sign)
        cells[f"verdict on {split}"] = line[f"{split}_verdict"]
    return pd.Series(cells | {"nearer split": line["nearer_split"]})


def main(arguments: list[str] | None = None) -> None:
    """Command line: rebuild the tables and the verdicts."""
    parser = argparse.ArgumentParser(prog="python -m reporting.tables", description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results"), help="the results' folder")
    parser.add_argument("--allow-missing-seeds", action="store_true", help="build from the seeds there are")
    parser.add_argument("--allow-mixed-code", action="store_true", help="accept different or uncommitted code")
    options = parser.parse_args(arguments)
    try:
        written = rebuild(
            options.results,
            allow_missing_seeds=options.allow_missing_seeds,
            allow_mixed_code=options.allow_mixed_code,
        )
    except (RecordError, TableError) as error:
        raise SystemExit(f"error: {error}") from error
    print(*written, sep="\n")


if __name__ == "__main__":
    main()
