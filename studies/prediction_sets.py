"""Prediction sets: the support of a sparse map beside LAC, APS, RAPS and the log-margin.

Each data set or network gives logits of held-out examples. A part of them chooses parameters; the rest is split many
times at random into halves, of which one calibrates and the other tests.
"""

from pathlib import Path

import numpy as np

import sharmix
from studies.conformal_scores import Contenders
from studies.conformal_splits import ConformalSplits
from studies.logits import PUBLIC, LabelledLogits, network_logits, public_probabilities
from studies.prediction_sets_report import report
from studies.study import Row, Settings, Task

__all__ = ["measure", "report", "tasks"]


def tasks(settings: Settings, data: Path | None) -> list[Task]:
    """The public probabilities, and every network with every seed."""
    public = [{"data_set": name, "network": PUBLIC, "seed": 0} for name in settings["probability_sets"]]
    return public + [
        {"data_set": data_set, "network": network, "seed": seed}
        for data_set, networks in settings["networks"].items()
        for network, described in networks.items()
        for seed in described["seeds"]
    ]


def measure(task: Task, settings: Settings, data: Path | None) -> list[Row]:
    """Coverage, size, singletons and stratified violation of every score, means over all splits.

    A coverage is left out where, on the selection part, sets of one class reach it, or not even all classes of a
    probability above 0 do; and where too few calibration scores lie beyond the threshold.
    """
    examples = _examples(task, settings, data)
    logits, labels, _ = examples
    random = np.random.default_rng(settings["seed"])
    order = random.permutation(len(labels))
    count = round(settings["selection_share"] * len(labels))
    selection, pool = np.sort(order[:count]), np.sort(order[count:])
    contenders = Contenders(examples, selection, settings, random)
    halves = np.stack([random.permutation(len(pool)) for _ in range(settings["splits"])])
    chosen_on = logits[selection], labels[selection]
    accuracy = float((chosen_on[0].argmax(-1) == chosen_on[1]).double().mean())
    reachable = float(chosen_on[0].gather(-1, chosen_on[1][:, None]).isfinite().double().mean())
    rows: list[Row] = []
    for level in settings["coverages"]:
        few = len(pool) // 2 * (1 - level) < settings["least_beyond"]
        if few or not accuracy < level <= reachable:
            continue
        plain = None
        for name, scores, chosen in contenders.all(level):
            found = ConformalSplits(scores[pool], labels[pool], level, halves, settings)
            plain = found if plain is None else plain
            low, high = np.quantile(found.size / plain.size - 1, settings["quantiles"])
            values = found.means() | chosen | {"size over LAC, low": low, "size over LAC, high": high}
            rows += [
                {"contender": name, "level": level, "metric": metric, "value": values[metric]} for metric in values
            ]
    return rows


def _examples(task: Task, settings: Settings, data: Path | None) -> LabelledLogits:
    if task["network"] == PUBLIC:
        probabilities, labels = public_probabilities(task["data_set"], data)
        return LabelledLogits(probabilities.log(), labels, sharmix.Softmax())  # −∞ where a probability is 0
    network = settings["networks"][task["data_set"]][task["network"]]
    return network_logits(network["overrides"], task["seed"], data)
