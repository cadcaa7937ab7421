"""Under which hypothesis about its making a published number comes near ours."""

from functools import cache
from math import inf, isnan, nan
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from reporting.records.declaration import Claim, Hypothesis, Nearness
from reporting.records.kept_runs import KeptRuns
from reporting.records.statistics import POINTS


class Near(NamedTuple):
    """Our number under a hypothesis, and how far from it the published number is."""

    hypothesis: str
    value: float
    deviations: float


def rule_of_nearness(near: Nearness) -> str:
    """The rule by which `nearest` decides, for pages."""
    names = "; ".join(dict.fromkeys(hypothesis.name for hypothesis in near.hypotheses))
    return f"""\
A number that does not reproduce **comes near when** our number under a hypothesis lies within {near.within:g} \
published deviations of it; of a difference, the deviations of its rows are combined. Where the paper prints no \
deviation of sparsity, {near.sparsity_deviation:g} stands for it; other numbers without a deviation are not compared. \
Of several hypotheses the nearest is shown, with our number and its distance in deviations. Tried: {names}. That a \
number appears under a hypothesis does not show how it was made."""


def nearest(
    kept: KeptRuns, name: str, claim: Claim, row: str, published: float, deviation: float, on_train: float
) -> Near | None:
    """The nearest hypothesis, if the published number comes near ours under one.

    `deviation` is that of the published number, NaN if the paper prints none, and `on_train` our mean on train.
    """
    near, table = kept.declaration.near, kept.declaration.tables[name]
    if near is None:
        return None
    points = POINTS if claim.against else 1
    if isnan(deviation) and claim.metric == "sparsity":
        deviation = points * near.sparsity_deviation
    found = []
    for hypothesis in near.hypotheses:
        file = kept.results / "studies" / f"{hypothesis.study}.csv"
        if hypothesis.split == "train":
            value = on_train if claim.split == "test" else nan
        elif hypothesis.experiment != table.experiment or not {row, *claim.against} <= hypothesis.rows.keys():
            continue
        else:  # other folders of results may have no studies
            value = points * _of_study(_records(file), hypothesis, claim, row) if file.exists() else nan
        distance = abs(value - published)
        found.append(Near(hypothesis.name, value, distance / deviation if deviation else inf if distance else 0.0))
    held = [one for one in found if one.deviations <= near.within]
    return min(held, key=lambda one: one.deviations, default=None)


def _of_study(records: pd.DataFrame, hypothesis: Hypothesis, claim: Claim, row: str) -> float:
    """Our mean of a row, or its difference to the mean of others, in a study."""
    for column, value in (hypothesis.where | {"metric": claim.metric}).items():
        records = records[records[column] == value]
    means = records.groupby("contender")["value"].mean()
    own = means[hypothesis.rows[row]]
    return float(own - means[[hypothesis.rows[other] for other in claim.against]].mean() if claim.against else own)


@cache
def _records(file: Path) -> pd.DataFrame:
    return pd.read_csv(file)
