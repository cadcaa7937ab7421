"""The published numbers beside ours, with verdicts: those of all claims, and those of the paper's main table.

A claim concerns one or several published numbers. Each number has its own verdict.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan
from typing import Any

from experiments.metric_catalogue import metric
from reporting.declaration import Claim, Declaration, Numbers, Table
from reporting.kept_runs import KeptRuns
from reporting.number_formats import NOT_REACHED, as_printed, over_seeds, with_interval
from reporting.outcomes import outcome_of
from reporting.palette import label
from reporting.report.payload import group_key
from reporting.selection import Selection
from reporting.verdicts import Verdict, decide_claims


@dataclass(frozen=True)
class Decided:
    """A published number, and what the page shows beside it."""

    line: dict[str, Any]  # of `reporting.verdicts.decide_claims`
    table: str  # the paper's name of the claim's table, or our title of it
    kind: str  # of number, such as "Accuracy" or "Accuracy, beside another activation"
    difference: bool  # whether the number is a difference between activations
    published: str  # the paper's number as text
    ours: str  # our mean and its interval on test as text
    train: str  # our mean and its interval on train, with the verdict there
    outcome: str  # a key of `reporting.outcomes.OUTCOMES`
    numbers: dict[str, float | None]  # published, ours and the interval's ends, in full precision
    runs: tuple[list[str], list[str]]  # keys of the groups that are averaged, and that they are compared with
    epoch: int | None  # None for the epoch that runs report


def decided_claims(kept: KeptRuns, numbers: Mapping[str, Numbers]) -> list[Decided]:
    """Every claim of the declared tables for each of its rows, in the order of results/tables/verdicts.csv.

    `numbers` are the papers', by table.
    """
    declaration = kept.declaration
    return [
        one
        for name, selection in kept.selections.items()
        for one in _of_table(declaration, name, numbers[name], selection)
    ]


def main_table(kept: KeptRuns, numbers: Mapping[str, Numbers]) -> tuple[Table, dict[str, dict[str, Decided]]] | None:
    """The first declared table with differences between published rows, and its numbers by row and title.

    They are the test metrics that the paper prints, then the differences to the baseline. None without such a table.
    """
    for name, selection in kept.selections.items():
        if claims := _all_numbers(kept.declaration.tables[name], [*numbers[name]]):
            table = kept.declaration.tables[name].model_copy(update={"claims": claims})
            declaration = kept.declaration.model_copy(update={"tables": {name: table}})
            rows: dict[str, dict[str, Decided]] = {}
            for one in _of_table(declaration, name, numbers[name], selection):
                rows.setdefault(one.line["row"], {})[one.line["claim"]] = one
            return table, rows
    return None


def _all_numbers(table: Table, rows: list[str]) -> list[Claim]:
    """A claim for each test metric that the paper prints in these rows, and one for the differences to the baseline."""
    baseline = [row for row in rows if table.rows[row].select == table.baseline]
    if not table.compared or not table.baseline or not baseline:
        return []
    printed = [columns for columns in table.columns if columns.printed and columns.split == "test"]
    cells = {cell: title for columns in printed for cell, title in columns.titles().items()}
    levels = [Claim(text=title, metric=cell.metric, rows=rows, epoch=cell.epoch) for cell, title in cells.items()]
    title = f"{table.metrics()[table.compared]} − {label(table.baseline)}, points"
    others = [row for row in rows if row not in baseline]
    return [*levels, Claim(text=title, metric=table.compared, rows=others, against=baseline)]


def _of_table(declaration: Declaration, name: str, numbers: Numbers, selection: Selection) -> list[Decided]:
    lines = decide_claims(declaration, name, numbers, selection)
    table = declaration.tables[name]
    rows = [(claim, row) for claim in table.claims for row in claim.rows]
    return [_decided(table, selection, line, *of) for line, of in zip(lines, rows, strict=True)]


def _decided(table: Table, selection: Selection, line: dict[str, Any], claim: Claim, row: str) -> Decided:
    difference = line["kind"] == "difference"
    decimals, sign = (2, "+") if difference else (3, "-")

    def ours(split: str) -> str:
        mean, low, high = (line[f"{split}_{key}"] for key in ("mean", "low", "high"))
        return with_interval(mean, low, high, decimals, sign) + over_seeds(line[f"{split}_seeds"], len(table.seeds))

    def keys(rows: list[str]) -> list[str]:
        return [group_key(selection.rows[name].records[0]) for name in rows if selection.rows[name]]

    reached = line["test_verdict"] != Verdict.NOT_REACHED  # otherwise the epochs of both differ
    means = {key: _or_none(line[f"test_{key}"]) if reached else None for key in ("mean", "low", "high")}
    return Decided(
        line,
        table=table.number or table.title,
        kind=_kind(claim),
        difference=difference,
        published=as_printed(line["published"], line["half_width"], decimals, sign),
        ours=ours("test") if reached else NOT_REACHED,
        train=f"{ours('train')}: {line['train_verdict']}" if reached else line["test_verdict"],
        outcome=outcome_of(line["test_verdict"]),
        numbers={"published": line["published"], **means},
        runs=(keys([row]), keys(claim.against)),
        epoch=claim.epoch or table.epoch,
    )


def _or_none(value: float) -> float | None:
    return None if isnan(value) else value


def _kind(claim: Claim) -> str:
    name = metric(claim.metric).label
    return f"{name[0].upper()}{name[1:]}{', beside another activation' if claim.against else ''}"
