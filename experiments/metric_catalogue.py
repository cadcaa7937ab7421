"""All numbers that runs measure, in one list: name, label and range."""

import functools
import re
from math import inf
from typing import NamedTuple

SHOTS = ("many", "medium", "few")  # groups of long-tailed classes, by their training examples; "few_accuracy"


class Metric(NamedTuple):
    """A number in the curves."""

    label: str  # its name for readers
    least: float = -inf
    largest: float = inf
    summarised: bool = False  # whether the summary and the report show its mean over seeds


# In the order in which readers see them; the first that a run measured is its headline.
METRICS = {
    "accuracy": Metric("accuracy", 0, 1, summarised=True),
    "bleu": Metric("BLEU", 0, 100, summarised=True),
    "chrf": Metric("chrF", 0, 100, summarised=True),
    "exact_match": Metric("exact match", 0, 1, summarised=True),
    "macro_f1": Metric("macro-F1", 0, 1, summarised=True),
    "sparsity": Metric("sparsity", 0, 1, summarised=True),
    "sparsity_in_use": Metric("sparsity of the words in use", 0, 1),
    "support": Metric("support", 0, summarised=True),
    "coverage": Metric("coverage", 0, 1, summarised=True),
    "zero_true": Metric("true class at exactly 0", 0, 1),
    "brier": Metric("Brier score", 0, summarised=True),
    "loss": Metric("loss"),  # an activation of the user's own may have a negative one
    "empty_preferred": Metric("empty translation preferred", 0, 1),
    "empty_possible": Metric("empty translation possible", 0, 1),
    "unfinished": Metric("no translation ended", 0, 1),
    "alpha": Metric("α"),
    "q": Metric("q"),
    "r": Metric("r"),
    "tau": Metric("τ"),
    "steps": Metric("steps", 0),
    "learning_rate": Metric("learning rate", 0),
    "examples_per_second": Metric("examples a second", 0),
    "training_seconds": Metric("seconds of training", 0),
    "decoding_seconds": Metric("seconds of decoding", 0),
}


@functools.cache
def metric(column: str) -> Metric:
    """The metric in a column of the curves: "test/accuracy", "few_accuracy" or "steps".

    A metric of the user's own may have any value, and its label is its name.
    """
    name = column.rpartition("/")[2]
    if name in METRICS:
        return METRICS[name]
    if steps := re.fullmatch(r"support_to_(\d+)", name):
        return Metric(f"support to {steps[1]}", 0, 1)
    shots, _, rest = name.partition("_")
    if shots in SHOTS and rest:
        return metric(rest)._replace(label=f"{metric(rest).label} of {shots}-shot classes", summarised=False)
    return Metric(name.replace("_", " "))
