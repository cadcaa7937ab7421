"""Decides by one rule, which is written in `RULE`, which published numbers our runs reproduce."""

from enum import StrEnum
from math import isclose, isnan
from typing import Any

import pandas as pd

from reporting.records.declaration import Cell, Claim
from reporting.records.kept_runs import KeptRuns
from reporting.records.selection import Selection
from reporting.records.statistics import POINTS, Estimate, estimate, paired_difference

RULE = """\
A published number **reproduces** when our interval contains a value that rounds to the printed number (for a \
difference: a value that two printed numbers can have; for a range: a value in it). A published difference that is \
missed reproduces in **direction only** when ours has the same sign and our interval excludes 0. Every other number \
**does not reproduce**. Fewer than three seeds leave a number **open**. The verdict is for the test split, because the \
paper says that its numbers are. The same rule on the training split stands beside it."""
FEWEST_SEEDS = 3  # Student's t interval of two seeds is so wide that nearly every number reproduces
NOT_REACHED_RULE = """\
A published number is **open**, too, where some run has not trained as many epochs yet. It is never compared with a \
number of ours at another epoch."""


class Verdict(StrEnum):
    """The verdict of our runs on a published number."""

    REPRODUCES = "reproduces"
    DIRECTION = "direction only"
    FAILS = "does not reproduce"
    TOO_FEW_SEEDS = "open: too few seeds"
    NOT_REACHED = "open: epoch not reached"


def decide(published: float, ours: Estimate, rounding: float, difference: bool) -> Verdict:
    """Decide whether a published number was reproduced, by the rule in `RULE`.

    `rounding` is the largest error of the paper's rounding, in the unit of both; the sign matters for a `difference`.
    """
    if ours.seeds < FEWEST_SEEDS:
        return Verdict.TOO_FEW_SEEDS
    if ours.low - rounding <= published <= ours.high + rounding:
        return Verdict.REPRODUCES
    excludes_zero = ours.low > 0 or ours.high < 0
    if difference and excludes_zero and ours.mean * published > 0:
        return Verdict.DIRECTION
    return Verdict.FAILS


def decide_claim(kept: KeptRuns, name: str, claim: Claim, row: str) -> dict[str, Any]:
    """Decide a claim about a row of the table `name`.

    Returns:
        A line: the published number, our estimate and verdict on test and on train, the split whose mean is nearer to
        the published number, and what explains a number that does not reproduce. Levels are fractions, differences
        percentage points.
    """
    declaration, numbers, selection = kept.declaration, kept.numbers[name], kept.selections[name]
    table = selection.table
    printed = Cell("test", claim.metric, claim.epoch)
    published, _, half_width = numbers[row][printed]
    rounding = 0.5 * 10**-declaration.published_decimals + half_width
    if claim.against:
        others = [numbers[other][printed].mean for other in claim.against]
        published = POINTS * (published - sum(others) / len(others))
        rounding = 2 * POINTS * rounding  # both numbers are rounded
    line: dict[str, Any] = {
        "table": name,
        "claim": claim.text,
        "row": table.labels()[row],
        "kind": "difference" if claim.against else "level",
        "metric": claim.metric,
        "unit": "percentage points" if claim.against else "fraction",
        "published": published,
        "half_width": half_width,
    }
    epoch = claim.epoch or table.epoch
    records = [record for name in (row, *claim.against) for record in selection.rows[name].records]
    reached = epoch is None or all(record.last_epoch >= epoch for record in records)
    distances = {}
    for split in ("test", "train"):
        values = _values_by_seed(claim, row, split, epoch, selection) if reached else pd.Series(dtype=float)
        ours = estimate(values, declaration.confidence)
        verdict = decide(published, ours, rounding, bool(claim.against)) if reached else Verdict.NOT_REACHED
        line |= {
            f"{split}_mean": ours.mean,
            f"{split}_low": ours.low,
            f"{split}_high": ours.high,
            f"{split}_seeds": ours.seeds,
            f"{split}_verdict": verdict.value,
        }
        distances[split] = abs(ours.mean - published)
    test, train = distances.values()
    nearer = "test" if test < train else "train"
    line["nearer_split"] = "neither" if isnan(test) or isnan(train) or isclose(test, train) else nearer
    line["explained"] = claim.explanation(row) if line["test_verdict"] in (Verdict.FAILS, Verdict.DIRECTION) else ""
    return line


def _values_by_seed(claim: Claim, row: str, split: str, epoch: int | None, selection: Selection) -> pd.Series:
    values = selection.rows[row].values(split, claim.metric, epoch)
    if not claim.against:
        return values
    others = {other: selection.rows[other].values(split, claim.metric, epoch) for other in claim.against}
    mean_of_others = pd.DataFrame(others).mean(axis="columns", skipna=False)
    return POINTS * paired_difference(values, mean_of_others)
