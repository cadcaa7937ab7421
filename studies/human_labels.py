"""Labels that people gave: which classes of CIFAR-10 a person sees, predicted by a support or by a threshold.

Every contender gives each class a score. Its set contains the classes that reach a threshold. The threshold and all
other parameters are chosen on all parts but one, and this last part tests them.
"""

from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.model_selection import KFold
from torch import Tensor

from sharmix.conformal import support_scores
from studies.class_sets import Scores, Sets, best_threshold, mean_f1
from studies.comparison import compare, table_of_means
from studies.logits import finite, public_logits
from studies.public_files import read_public_file
from studies.study import Finding, Report, Row, Settings, Task, rows_of

Choices = list[tuple[dict[str, float], Scores]]  # the values of the parameters with the scores that they give


def tasks(settings: Settings, data: Path | None) -> list[Task]:
    return [{"part": part} for part in range(settings["parts"])]


def measure(task: Task, settings: Settings, data: Path | None) -> list[Row]:
    logits = finite(public_logits(settings["probabilities"], data).logits)
    shares = np.load(BytesIO(read_public_file(data, settings["labels_by_people"])))
    parts = KFold(settings["parts"], shuffle=True, random_state=settings["parts_seed"])
    chosen_on, tested_on = list(parts.split(shares))[task["part"]]
    rows = []
    for contender, choices in _contenders(logits, settings).items():
        for people, least in settings["people"].items():
            true: Sets = shares > least
            tried = [(*best_threshold(scores[chosen_on], true[chosen_on]), one, scores) for one, scores in choices]
            threshold, _, choice, scores = max(tried, key=lambda one: one[1])
            sets = scores[tested_on] >= threshold
            values = {"f1": mean_f1(sets, true[tested_on]), "size": sets.sum(-1).mean(), "threshold": threshold}
            rows += rows_of(values | choice, people=people, contender=contender)
    return rows


def _contenders(logits: Tensor, settings: Settings) -> dict[str, Choices]:
    p = logits.softmax(-1)
    descending = p.sort(-1, descending=True)
    rank = descending.indices.argsort(-1)
    above = (descending.values.cumsum(-1) - descending.values).gather(-1, rank)  # the mass of all classes ranked above
    temperatures = np.geomspace(*settings["temperatures"]).tolist()
    orders = [(q, r) for q in settings["q"] for r in (q, *(2 - 1 / q + more for more in settings["r_above_least"]))]
    return {
        "threshold": [({}, p.numpy())],
        "margin": [({}, (logits - logits.amax(-1, keepdim=True)).numpy())],
        "top-k": [({}, -rank.double().numpy())],
        "cumulative mass": [({}, -above.numpy())],
        "temperature and threshold": [({"temperature": t}, (logits / t).softmax(-1).numpy()) for t in temperatures],
        "entmax": _supports(logits, [(q, q) for q in settings["q"]]),
        "sharmix": _supports(logits, orders),
    }


def _supports(logits: Tensor, orders: list[tuple[float, float]]) -> Choices:
    """A class's score is minus the temperature above which it is in the support.

    A threshold of scores is therefore minus a temperature.
    """
    return [({"q": q, "r": r}, -support_scores(logits, q=q, r=r).numpy()) for q, r in orders]


def report(records: pd.DataFrame, settings: Settings, shown: Settings) -> Report:
    first, [(one, shown_as)] = shown["opponents"][0], shown["found"].items()
    tables, findings = {}, []
    for people in settings["people"]:
        own = records[records["people"] == people]
        table = table_of_means(own)
        for opponent in shown["opponents"]:
            others = table.index.drop(opponent)
            changes = [str(compare(own, "f1", other, opponent, "part")) for other in others]
            table[f"F1 − {opponent}"] = pd.Series(changes, others)
        tables[f"Classes seen by {people}"] = table.fillna("").reset_index()
        found = compare(own, "f1", one, first, "part")
        use, contender, opponent = f"sets of classes seen by {people}", f"support of {shown_as}", f"softmax, {first}"
        verdict = found.verdict("higher")
        findings.append(Finding(use, contender, opponent, verdict, f"F1 {found}", 1, settings["parts"]))
    return Report(tables, findings, shown["notes"])
