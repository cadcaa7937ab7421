"""Decides by one rule, which is written in `rules`, which published numbers our runs reproduce."""

from enum import StrEnum
from math import nan, sqrt
from typing import Any

import pandas as pd

from reporting.records.declaration import Cell, Claim, Declaration, Level
from reporting.records.kept_runs import KeptRuns
from reporting.records.selection import Selection
from reporting.records.statistics import POINTS, Estimate, estimate, interval_beside, paired_difference
from reporting.verdicts.hypotheses import Near, nearest, rule_of_nearness

FEWEST_SEEDS = 3  # Student's t interval of two seeds is so wide that nearly every number reproduces
NOT_FOUND = "not found"  # where no hypothesis comes near


class Verdict(StrEnum):
    """The verdict of our runs on a published number."""

    REPRODUCES = "reproduces"
    BY_WIDTH = "not shown"
    DIRECTION = "direction only"
    FAILS = "does not reproduce"
    TOO_FEW_SEEDS = "open: too few seeds"
    NOT_REACHED = "open: epoch not reached"


def rules(declaration: Declaration) -> list[str]:
    """The rule of `decide`, and that of a number which comes near under a hypothesis: paragraphs for pages."""
    near = [rule_of_nearness(declaration.near)] if declaration.near else []
    return [
        f"""\
A published number **reproduces** when it lies in our interval, up to its rounding (for a range: when a value in it \
does), and the interval is narrow: for a fraction narrower than {declaration.narrow:g}, for a difference on one side \
of 0. In a wider interval it is **not shown**, because it holds by the width alone. A published difference that is \
missed reproduces in **direction only** when ours has the same sign and our interval excludes 0. Every other number \
**does not reproduce**. Fewer than three seeds leave a number **open**. The verdict is for the split that the paper \
names: test, but for Table 4's accuracies on train. The same rule on the other split stands beside it.""",
        f"""\
Our interval ({declaration.confidence:.0%}) is that of the difference between two means, theirs and ours, drawn around \
ours. Theirs is a mean over {declaration.published_runs} runs, as the paper says. Where it prints a deviation, the \
interval is Welch's with that deviation. Where it prints none, as for sparsity and for CIFAR-100, theirs is taken to \
vary as ours does, and the interval is Student's, with one degree of freedom fewer than seeds of ours. Intervals of \
fractions are cut at 0 and at 1.""",
        """\
A published number is **open**, too, where some run has not trained as many epochs yet. It is never compared with a \
number of ours at another epoch.""",
        *near,
    ]


def decide(published: float, ours: Estimate, rounding: float, difference: bool, narrow: float) -> Verdict:
    """Decide whether a published number was reproduced, by the rule in `rules`.

    `rounding` is the largest error of the paper's rounding, in the unit of both; the sign matters for a `difference`.
    """
    if ours.seeds < FEWEST_SEEDS:
        return Verdict.TOO_FEW_SEEDS
    excludes_zero = ours.low > 0 or ours.high < 0
    if ours.low - rounding <= published <= ours.high + rounding:
        is_narrow = excludes_zero if difference else ours.high - ours.low < narrow
        return Verdict.REPRODUCES if is_narrow else Verdict.BY_WIDTH
    if difference and excludes_zero and ours.mean * published > 0:
        return Verdict.DIRECTION
    return Verdict.FAILS


def decide_claim(kept: KeptRuns, name: str, claim: Claim, row: str) -> dict[str, Any]:
    """Decide a claim about a row of the table `name`.

    Returns:
        A line: the published number, our estimate and verdict on test and on train, the verdict on the claim's split,
        and the hypothesis under which a number that does not reproduce comes near. Levels are fractions, differences
        percentage points.
    """
    declaration, selection = kept.declaration, kept.selections[name]
    table, theirs = selection.table, _published(kept, name, claim, row)
    line: dict[str, Any] = {
        "table": name,
        "claim": claim.text,
        "row": table.labels()[row],
        "kind": "difference" if claim.against else "level",
        "metric": claim.metric,
        "unit": "percentage points" if claim.against else "fraction",
        "split": claim.split,
        "published": theirs.mean,
        "half_width": theirs.half_width,
    }
    rounding = 0.5 * 10**-declaration.published_decimals
    rounding = (2 * POINTS if claim.against else 1) * rounding + theirs.half_width  # of two numbers, or of one
    epoch = claim.epoch or table.epoch
    records = [record for name in (row, *claim.against) for record in selection.rows[name].records]
    reached = epoch is None or all(record.last_epoch >= epoch for record in records)
    for split in ("test", "train"):
        values = _values_by_seed(claim, row, split, epoch, selection) if reached else pd.Series(dtype=float)
        ours = _beside_theirs(values, theirs, declaration, bool(claim.against))
        difference, narrow = bool(claim.against), declaration.narrow
        verdict = decide(theirs.mean, ours, rounding, difference, narrow) if reached else Verdict.NOT_REACHED
        line |= {
            f"{split}_mean": ours.mean,
            f"{split}_low": ours.low,
            f"{split}_high": ours.high,
            f"{split}_seeds": ours.seeds,
            f"{split}_verdict": verdict.value,
        }
    line["verdict"] = line[f"{claim.split}_verdict"]
    missed = line["verdict"] in (Verdict.FAILS, Verdict.DIRECTION)
    near = nearest(kept, name, claim, row, theirs.mean, theirs.std, line["train_mean"]) if missed else None
    near = near or Near(NOT_FOUND if missed else "", nan, nan)
    return line | {"near_when": near.hypothesis, "near_value": near.value, "near_deviations": near.deviations}


def _published(kept: KeptRuns, name: str, claim: Claim, row: str) -> Level:
    """The published number that a claim is about; of a difference in percentage points, with combined deviations."""
    numbers, cell = kept.numbers[name], Cell(claim.split, claim.metric, claim.epoch)
    own = numbers[row][cell]
    if not claim.against:
        return own
    others = [numbers[other][cell] for other in claim.against]
    mean = own.mean - sum(other.mean for other in others) / len(others)
    variance = own.std**2 + sum(other.std**2 for other in others) / len(others) ** 2
    half_width = own.half_width + sum(other.half_width for other in others) / len(others)
    return Level(POINTS * mean, POINTS * sqrt(variance), POINTS * half_width)


def _beside_theirs(values: pd.Series, theirs: Level, declaration: Declaration, difference: bool) -> Estimate:
    """Our mean, with the interval in which theirs can lie beside it."""
    ours = estimate(values, declaration.confidence)
    low, high = interval_beside(ours, theirs.std, declaration.published_runs, declaration.confidence)
    return ours._replace(low=low, high=high) if difference else ours._replace(low=max(low, 0.0), high=min(high, 1.0))


def _values_by_seed(claim: Claim, row: str, split: str, epoch: int | None, selection: Selection) -> pd.Series:
    values = selection.rows[row].values(split, claim.metric, epoch)
    if not claim.against:
        return values
    others = {other: selection.rows[other].values(split, claim.metric, epoch) for other in claim.against}
    mean_of_others = pd.DataFrame(others).mean(axis="columns", skipna=False)
    return POINTS * paired_difference(values, mean_of_others)
