"""Sparsity on test where training sets are learned equally well: the training sets of Figure 2 with several seeds."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats

from reporting.records.declaration import Declaration
from reporting.records.kept_runs import KeptRuns
from reporting.records.runs import Runs
from reporting.text.columns import Block, Column
from reporting.text.markdown import page
from reporting.text.number_formats import NOTHING, number, over_seeds, with_interval

FITS = {"accuracy": "accuracy on train", "macro_f1": "macro-F1 on train"}
COMPARED = "long-tailed"  # with every other training set


def equal_fit_page(kept: KeptRuns) -> str:
    """The page in Markdown, empty if nothing can be compared: for each network and measure of fit a table."""
    declaration, blocks = kept.declaration, []
    for row, groups in kept.training_sets:
        sets = {group.label: group.runs for group in groups if len(group.runs) > 1}
        if COMPARED in sets:
            blocks += [_block(f"{row.title}, by {FITS[fit]}", f"train/{fit}", sets, declaration) for fit in FITS]
    blocks = [block for block in blocks if block.rows]
    notes = [
        "The share of exact zeros on test, mean over the seeds, where the network fits the training set as well as the "
        "row says. It is interpolated between the first epoch that fits as well and the epoch before. Metrics on train "
        "are measured while an epoch trains, on each batch before its step.",
        f"*Minus*: the sparsity of the {COMPARED} set minus that of the other, with Welch's interval "
        f"({declaration.confidence:.0%}). *About equal*: it lies within ±{declaration.narrow}. *Sparser*, *denser*: "
        f"the {COMPARED} output is. *Not shown*: the interval includes 0 and more than ±{declaration.narrow}. Of "
        "twenty such intervals one is expected to miss.",
        "Training sets with one seed, and rows without a comparison, are left out. Repeat: make tables",
    ]
    return page("Sparsity at equal fit, SharMiX learned", blocks, notes, corner="fit") if blocks else ""


def sparsity_at_fit(runs: Runs, fit: str, level: float) -> list[float]:
    """Sparsity on test of each run where the column `fit` of its curves first reaches a level; none of other runs."""
    fits, sparsity = runs.by_epoch(fit), runs.by_epoch("test/sparsity")
    reached = {seed: int(fits[seed].ge(level).argmax()) for seed in fits}  # 0 in the first epoch, or never
    around = {seed: slice(place - 1, place + 1) for seed, place in reached.items() if place}
    return [float(np.interp(level, fits[seed].iloc[two], sparsity[seed].iloc[two])) for seed, two in around.items()]


def _block(heading: str, fit: str, sets: dict[str, Runs], declaration: Declaration) -> Block:
    found = {name: [sparsity_at_fit(runs, fit, level) for level in declaration.fits] for name, runs in sets.items()}
    means = {name: [_mean(values, len(sets[name])) for values in own] for name, own in found.items()}
    differences = {
        f"minus {name}": [_difference(*pair, declaration) for pair in zip(found[COMPARED], own, strict=True)]
        for name, own in found.items()
        if name != COMPARED
    }
    shown = [any(cell != NOTHING for cell in cells) for cells in zip(*differences.values(), strict=True)]
    table = pd.DataFrame(means | differences, index=[str(level) for level in declaration.fits])[shown]
    return Block(heading, list(table.index), [Column(str(name), list(own)) for name, own in table.items()])


def _mean(values: Sequence[float], of: int) -> str:
    return number(float(np.mean(values)), 3) + over_seeds(len(values), of) if values else NOTHING


def _difference(first: Sequence[float], second: Sequence[float], declaration: Declaration) -> str:
    """The difference of two means with its interval, and what it shows."""
    if min(len(first), len(second)) < 2:
        return NOTHING
    low, high = stats.ttest_ind(first, second, equal_var=False).confidence_interval(declaration.confidence)
    if max(-low, high) <= declaration.narrow:
        shows = "about equal"
    else:
        shows = "sparser" if low > 0 else "denser" if high < 0 else "not shown"
    return f"{with_interval(float(np.mean(first) - np.mean(second)), low, high, 3, sign='+')}, {shows}"
