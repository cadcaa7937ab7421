"""The published numbers beside ours, with a verdict on each."""

from math import isnan
from typing import Any, NamedTuple

from experiments.metric_catalogue import metric
from reporting.records.declaration import Claim
from reporting.records.kept_runs import KeptRuns
from reporting.report.payload import run_key
from reporting.verdicts import Verdict, decide_claim
from reporting.verdicts.outcomes import near_when, ours, outcome_of, theirs


class Decided(NamedTuple):
    """A published number, and what the page shows beside it."""

    line: dict[str, Any]  # of `reporting.verdicts.decide_claim`
    table: str  # the paper's name of the claim's table, or our title of it
    kind: str  # of number, such as "Accuracy" or "Accuracy, beside another activation"
    published: str  # the paper's number as text
    ours: str  # our mean and its interval on the claim's split as text
    other: str  # the same on the other split, with the verdict there
    near: str  # the hypothesis under which the number comes near ours
    outcome: str  # a key of `reporting.verdicts.outcomes.OUTCOMES`
    numbers: dict[str, float | None]  # published, ours and the interval's ends, in full precision
    runs: tuple[list[str], list[str]]  # keys of the runs that are averaged, and of those that they are compared with
    epoch: int | None  # None for the epoch that runs report


def decided_claims(kept: KeptRuns) -> list[Decided]:
    """Every claim of the declared tables for each of its rows, in the order of results/tables/verdicts.csv."""
    return [
        _decided(kept, name, claim, row)
        for name, selection in kept.selections.items()
        for claim in selection.table.claims
        for row in claim.rows
    ]


def _decided(kept: KeptRuns, name: str, claim: Claim, row: str) -> Decided:
    selection, line = kept.selections[name], decide_claim(kept, name, claim, row)
    table, of = selection.table, metric(claim.metric).label
    reached = line["verdict"] != Verdict.NOT_REACHED
    means = {key: line[f"{claim.split}_{key}"] for key in ("mean", "low", "high")}
    other = "train" if claim.split == "test" else "test"
    verdict = line[f"{other}_verdict"]

    def keys(rows: list[str]) -> list[str]:
        return [run_key(record) for name in rows for record in selection.rows[name].records]

    return Decided(
        line,
        table=table.number or table.title,
        kind=f"{of[0].upper()}{of[1:]}{', beside another activation' if claim.against else ''}",
        published=theirs(line),
        ours=ours(line, claim.split, len(table.seeds)),
        other=f"{other}: {ours(line, other, len(table.seeds))}, {verdict}" if reached else verdict,
        near=near_when(line),
        outcome=outcome_of(line["verdict"]),
        numbers={"published": line["published"]} | {key: None if isnan(one) else one for key, one in means.items()},
        runs=(keys([row]), keys(claim.against)),
        epoch=claim.epoch or table.epoch,
    )
