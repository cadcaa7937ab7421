"""The verdicts on the papers' claims for the page: counted, and sorted by the kind of claim.

A claim concerns one or several published numbers. Each number has its own verdict.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

from reporting.declaration import Claim, load_numbers
from reporting.kept_runs import KeptRuns
from reporting.number_formats import NOT_REACHED, number, over_seeds, with_interval
from reporting.outcomes import outcome_of
from reporting.report.labels import metric_label
from reporting.report.payload import group_key
from reporting.runs import Runs
from reporting.selection import Selection
from reporting.verdicts import Verdict, decide_claims


@dataclass(frozen=True)
class Decided:
    """A published number of a claim, with the facts behind its verdict.

    Attributes:
        table: the paper's name of the claim's table, or our title of it.
        claim: the claim in words.
        row: label of the row.
        kind: the kind of number, such as "Accuracy" or "Accuracy, beside another activation".
        difference: whether the number is a difference between activations.
        published: the paper's number as text.
        ours: our mean and its interval on test as text.
        outcome: a key of `reporting.outcomes.OUTCOMES`.
        verdict: the verdict on test; for an open number, whether seeds or epochs are missing.
        train: our mean and its interval on train, with the verdict there.
        numbers: published, ours and the interval's ends, in full precision; None for a missing number.
        runs: keys of the groups whose runs are averaged, then of the groups that they are compared with.
        column: the name of the compared numbers in the curves.
        epoch: the epoch; None for the epoch that runs report.
    """

    table: str
    claim: str
    row: str
    kind: str
    difference: bool
    published: str
    ours: str
    outcome: str
    verdict: str
    train: str
    numbers: dict[str, float | None]
    runs: tuple[list[str], list[str]]
    column: str
    epoch: int | None


def decided_claims(kept: KeptRuns) -> list[Decided]:
    """Every claim of the declared tables for each of its rows, in the order of results/tables/verdicts.csv.

    Args:
        kept: the kept runs.
    """
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

    verdict = Verdict(line["test_verdict"])
    reached = verdict is not Verdict.NOT_REACHED  # otherwise the epochs of both differ
    return Decided(
        table=title,
        claim=line["claim"],
        row=line["row"],
        kind=_kind(claim),
        difference=difference,
        published=number(line["published"], decimals, sign) + unit,
        ours=ours("test") if reached else NOT_REACHED,
        outcome=outcome_of(verdict),
        verdict=verdict.value,
        train=f"{ours('train')}: {line['train_verdict']}" if reached else verdict.value,
        numbers={
            "published": line["published"],
            **{key: _or_none(line[f"test_{key}"]) if reached else None for key in ("mean", "low", "high")},
        },
        runs=([*_keys([selection.rows[row]])], [*_keys([selection.rows[other] for other in claim.against])]),
        column=f"test/{claim.metric}",
        epoch=claim.epoch or epoch,
    )


def _keys(rows: Sequence[Runs]) -> Iterator[str]:
    return (group_key(runs.records[0]) for runs in rows if runs)


def _or_none(value: float) -> float | None:
    return None if isnan(value) else value


def _kind(claim: Claim) -> str:
    metric = metric_label(claim.metric)
    return f"{metric[0].upper()}{metric[1:]}{', beside another activation' if claim.against else ''}"
