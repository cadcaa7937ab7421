"""The verdicts on the papers' claims for the page: counted, and sorted by the kind of claim.

A claim concerns one or several published numbers. Each number has its own verdict.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

from experiments.metric_catalogue import metric
from reporting.declaration import Claim, load_numbers
from reporting.kept_runs import KeptRuns
from reporting.number_formats import NOT_REACHED, as_printed, over_seeds, with_interval
from reporting.outcomes import outcome_of
from reporting.report.payload import group_key
from reporting.selection import Selection
from reporting.verdicts import Verdict, decide_claims


@dataclass(frozen=True)
class Decided:
    """A published number of a claim, with the facts behind its verdict."""

    table: str  # the paper's name of the claim's table, or our title of it
    claim: str  # in words
    row: str  # its label
    kind: str  # of number, such as "Accuracy" or "Accuracy, beside another activation"
    difference: bool  # whether the number is a difference between activations
    published: str  # the paper's number as text
    ours: str  # our mean and its interval on test as text
    outcome: str  # a key of `reporting.outcomes.OUTCOMES`
    verdict: str  # on test; for an open number, whether seeds or epochs are missing
    explained: str  # what explains a number that does not reproduce; empty for the others
    train: str  # our mean and its interval on train, with the verdict there
    numbers: dict[str, float | None]  # published, ours and the interval's ends, in full precision
    runs: tuple[list[str], list[str]]  # keys of the groups that are averaged, and that they are compared with
    column: str  # the name of the compared numbers in the curves
    epoch: int | None  # None for the epoch that runs report


def decided_claims(kept: KeptRuns) -> list[Decided]:
    """Every claim of the declared tables for each of its rows, in the order of results/tables/verdicts.csv."""
    declaration = kept.declaration
    numbers = load_numbers(kept.settings, declaration)
    decided = []
    for name, selection in kept.selections.items():
        table = declaration.tables[name]
        lines = decide_claims(declaration, name, numbers[name], selection)
        rows = [(claim, row) for claim in table.claims for row in claim.rows]
        for line, (claim, row) in zip(lines, rows, strict=True):
            decided.append(
                _decided(table.number or table.title, len(table.seeds), line, claim, row, selection, table.epoch)
            )
    return decided


def by_kind(claims: Sequence[Decided]) -> dict[str, list[Decided]]:
    """The claims by kind of number."""
    kinds = dict.fromkeys(claim.kind for claim in claims)
    return {kind: [claim for claim in claims if claim.kind == kind] for kind in kinds}


def _decided(
    title: str, seeds: int, line: dict[str, Any], claim: Claim, row: str, selection: Selection, epoch: int | None
) -> Decided:
    difference = line["kind"] == "difference"
    decimals, sign = (2, "+") if difference else (3, "-")
    unit = " points" if difference else ""

    def ours(split: str) -> str:
        mean, low, high = (line[f"{split}_{key}"] for key in ("mean", "low", "high"))
        return with_interval(mean, low, high, decimals, sign) + over_seeds(line[f"{split}_seeds"], seeds)

    def keys(rows: list[str]) -> list[str]:
        return [group_key(selection.rows[name].records[0]) for name in rows if selection.rows[name]]

    verdict = Verdict(line["test_verdict"])
    reached = verdict is not Verdict.NOT_REACHED  # otherwise the epochs of both differ
    return Decided(
        table=title,
        claim=line["claim"],
        row=line["row"],
        kind=_kind(claim),
        difference=difference,
        published=as_printed(line["published"], line["half_width"], decimals, sign) + unit,
        ours=ours("test") if reached else NOT_REACHED,
        outcome=outcome_of(verdict),
        verdict=verdict.value,
        explained=line["explained"],
        train=f"{ours('train')}: {line['train_verdict']}" if reached else verdict.value,
        numbers={
            "published": line["published"],
            **{key: _or_none(line[f"test_{key}"]) if reached else None for key in ("mean", "low", "high")},
        },
        runs=(keys([row]), keys(claim.against)),
        column=f"test/{claim.metric}",
        epoch=claim.epoch or epoch,
    )


def _or_none(value: float) -> float | None:
    return None if isnan(value) else value


def _kind(claim: Claim) -> str:
    name = metric(claim.metric).label
    return f"{name[0].upper()}{name[1:]}{', beside another activation' if claim.against else ''}"
