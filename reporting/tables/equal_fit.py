"""Sparsity on test where training sets are learned equally well: the training sets of Figure 2 with several seeds."""

from collections.abc import Mapping
from itertools import product

import numpy as np
import pandas as pd

from reporting.records.declaration import Declaration
from reporting.records.kept_runs import FITS, KeptRuns
from reporting.records.runs import Runs
from reporting.records.statistics import estimate, interval_beside
from reporting.text.columns import Block, Column
from reporting.text.markdown import page
from reporting.text.number_formats import number, with_interval

COMPARED = "long-tailed"  # with every other training set
SPARSITY = "test/sparsity"


def equal_fit_page(kept: KeptRuns) -> str:
    """The page in Markdown: the long-tailed set with each other one, by each measure of fit. Empty if there is none."""
    declaration, blocks = kept.declaration, []
    for row, groups in kept.training_sets:
        sets = {group.label: group.runs for group in groups if len(group.runs) > 1}
        if tail := sets.pop(COMPARED, None):
            for (other, runs), (name, fit) in product(sets.items(), FITS.items()):
                heading = f"{row.title}, {COMPARED} and {other}, by {name}"
                blocks.append(_block(heading, fit, {COMPARED: tail, other: runs}, declaration))
    blocks = [block for block in blocks if block.rows]
    notes = [
        "SharMiX learns q and r by its Fenchel–Young loss. Shown is the share of exact zeros on test, mean over seeds, "
        "where the network fits the training set as well as the row says. *Control*: balanced, with as many images as "
        "the long-tailed set. *Balanced*: with several times as many images, so that not the frequencies of classes "
        "alone differ.",
        "Metrics on train are measured while an epoch trains, so the fit at the end of an epoch is taken as the mean "
        "of this epoch's and the next one's. The sparsity at a fit is interpolated between the first epoch that "
        "reaches this fit and the epoch before.",
        "Accuracy counts images as often as they are drawn: where large classes have most of them, it is mostly "
        "theirs. Macro-F1 counts all classes alike.",
        f"*Difference*: the sparsity of the {COMPARED} set minus that of the other, with Welch's interval "
        f"({declaration.confidence:.0%}). *Sparser*, *denser*: the {COMPARED} output is, and the interval excludes 0. "
        f"*About equal*: the interval lies within ±{declaration.equal_within}, which is "
        f"{100 * declaration.equal_within:.0f} of 100 classes. A good fit leaves fewer above 0: at a sparsity of 0.98 "
        "two, at 0.96 four. There read the numbers, not the words. *Not shown*: none of these.",
        "Left out are training sets with one seed, and fits that not every seed of both sets reaches after its first "
        "epoch. All rows of a network come from the same few runs: several rows are no more evidence than one. Repeat: "
        "make tables",
    ]
    return page("Sparsity at equal fit, SharMiX learned", blocks, notes, corner="fit") if blocks else ""


def sparsity_at_fit(runs: Runs, fit: str, level: float) -> pd.Series:
    """Sparsity on test of each seed where the fit, a column of the curves, first reaches a level.

    NaN for a seed whose fit never does, or does in the first epoch.
    """
    found = {}
    for seed, curve in runs.measured.reindex(columns=[fit, SPARSITY]).groupby("seed"):
        at_ends = curve[fit].rolling(2).mean().shift(-1)  # of all epochs but the last
        fits, sparsity = curve.assign(**{fit: at_ends}).dropna().to_numpy().T
        after = int(np.argmax(fits >= level)) if len(fits) else 0
        around = slice(after - 1, after + 1)
        found[seed] = np.interp(level, fits[around], sparsity[around]) if after else np.nan
    return pd.Series(found, dtype=float)


def _block(heading: str, fit: str, sets: Mapping[str, Runs], declaration: Declaration) -> Block:
    """A row for each level of the fit that every seed of both sets passes."""
    lines = {}
    for level in declaration.fits:
        pair = [sparsity_at_fit(runs, fit, level) for runs in sets.values()]
        if not any(values.isna().any() for values in pair):
            means = [number(values.mean(), 3) for values in pair]
            lines[str(level)] = [*means, *_difference(*pair, declaration)]
    titles = [*sets, "difference", "shown"]
    columns = [Column(title, [cells[place] for cells in lines.values()]) for place, title in enumerate(titles)]
    return Block(heading, list(lines), columns)


def _difference(first: pd.Series, second: pd.Series, declaration: Declaration) -> tuple[str, str]:
    """The difference of two means with its interval, and what it shows."""
    ours, other = (estimate(values, declaration.confidence) for values in (first, second))
    ends = interval_beside(ours, other.std, other.seeds, declaration.confidence)
    low, high = (end - other.mean for end in ends)
    shows = ["sparser"] if low > 0 else ["denser"] if high < 0 else []
    if max(-low, high) <= declaration.equal_within:
        shows.append("about equal")
    return with_interval(ours.mean - other.mean, low, high, 3, sign="+"), ", ".join(shows) or "not shown"
