"""Labels that people gave: which classes of CIFAR-10 a person sees, predicted by a support or by a threshold.

Every contender gives each class a score. Its set contains the classes that reach a threshold. The threshold and all
other parameters are chosen on all parts but one, and this last part tests them.
"""

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.model_selection import KFold
from torch import Tensor

from sharmix.conformal import support_scores
from studies.class_sets import Scores, Sets, best_threshold, mean_f1
from studies.comparison import compare
from studies.logits import probability_set
from studies.public_files import read_public_file
from studies.study import Finding, Report, Row, Settings, Task

Family = Iterator[tuple[dict[str, float], Scores]]  # each choice of parameters with the scores that it gives


def tasks(settings: Settings, data: Path | None) -> list[Task]:
    return [{"part": part} for part in range(settings["parts"])]


def measure(task: Task, settings: Settings, data: Path | None) -> list[Row]:
    logits, _, _ = probability_set(settings["probabilities"], data)
    shares = np.load(BytesIO(read_public_file(data, settings["labels_by_people"])), allow_pickle=False)
    parts = KFold(settings["parts"], shuffle=True, random_state=settings["parts_seed"])
    chosen_on, tested_on = list(parts.split(shares))[task["part"]]
    rows = []
    for contender, family in _families(logits, settings).items():
        choices = list(family)
        for people, least in settings["people"].items():
            true: Sets = shares > least
            tried = [(*best_threshold(scores[chosen_on], true[chosen_on]), one, scores) for one, scores in choices]
            threshold, _, choice, scores = max(tried, key=lambda one: one[1])
            sets = scores[tested_on] >= threshold
            values = {"f1": mean_f1(sets, true[tested_on]), "size": sets.sum(-1).mean(), "threshold": threshold}
            same = {"people": people, "contender": contender}
            rows += [{**same, "metric": key, "value": float(value)} for key, value in (values | choice).items()]
    return rows


def _families(logits: Tensor, settings: Settings) -> dict[str, Family]:
    """The contenders by name."""
    p = logits.softmax(-1)
    descending = p.sort(-1, descending=True)
    rank = descending.indices.argsort(-1)
    above = (descending.values.cumsum(-1) - descending.values).gather(-1, rank)  # the mass of the classes ranked above
    temperatures = np.geomspace(*settings["temperatures"]).tolist()
    return {
        "threshold": iter([({}, p.numpy())]),
        "margin": iter([({}, (logits - logits.amax(-1, keepdim=True)).numpy())]),
        "top-k": iter([({}, -rank.double().numpy())]),
        "cumulative mass": iter([({}, -above.numpy())]),
        "temperature and threshold": (({"temperature": t}, (logits / t).softmax(-1).numpy()) for t in temperatures),
        "entmax": _supports(logits, [(q, q) for q in settings["q"]]),
        "sharmix": _supports(logits, [(q, r) for q in settings["q"] for r in _orders_r(q, settings)]),
    }


def _supports(logits: Tensor, orders: list[tuple[float, float]]) -> Family:
    """Minus the temperature above which a class is in the support. So the threshold is minus a temperature."""
    return (({"q": q, "r": r}, -support_scores(logits, q=q, r=r).numpy()) for q, r in orders)


def _orders_r(q: float, settings: Settings) -> list[float]:
    return [q, *(2 - 1 / q + above for above in settings["r_above_least"])]


def report(records: pd.DataFrame, settings: Settings, shown: Settings) -> Report:
    confidence = shown["confidence"]
    tables, findings = {}, []
    for name in settings["people"]:
        own = records[records["people"] == name]
        means = own.groupby(["contender", "metric"], sort=False)["value"].mean().unstack("metric")
        for opponent in shown["opponents"]:
            others = [contender for contender in means.index if contender != opponent]
            changes = {one: str(compare(own, "f1", one, opponent, "part", confidence)) for one in others}
            means[f"F1 − {opponent}"] = pd.Series(changes)
        first, parts = shown["opponents"][0], settings["parts"]
        for one, shown_as in shown["found"].items():
            found = compare(own, "f1", one, first, "part", confidence)
            use, by, verdict = f"sets of classes seen by {name}", f"F1 {found}", found.verdict("higher")
            findings.append(Finding(use, f"support of {shown_as}", f"softmax, {first}", verdict, by, 1, parts))
        numbers = means.select_dtypes("number").map(lambda value: "" if np.isnan(value) else f"{value:.4f}")
        tables[f"Classes seen by {name}"] = means.assign(**numbers).fillna("").reset_index()
    return Report(tables, findings, shown["notes"])
