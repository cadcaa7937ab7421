"""Names in the report for the numbers of the curves and for experiments."""

import re

from experiments.identity import ROOT

METRICS = {
    "accuracy": "accuracy",
    "macro_f1": "macro-F1",
    "bleu": "BLEU",
    "chrf": "chrF",
    "exact_match": "exact match",
    "sparsity": "sparsity",
    "sparsity_in_use": "sparsity of the words in use",
    "support": "support",
    "coverage": "coverage",
    "zero_true": "true class at exactly 0",
    "brier": "Brier score",
    "loss": "loss",
    "empty_preferred": "empty translation preferred",
    "empty_possible": "empty translation possible",
    "unfinished": "no translation ended",
    "alpha": "α",
    "tau": "τ",
    "learning_rate": "learning rate",
    "examples_per_second": "examples a second",
    "training_seconds": "seconds of training",
    "decoding_seconds": "seconds of decoding",
}
SPLITS = ("test", "validation", "dev", "train")
_GROUPS = ("many", "medium", "few")  # of long-tailed classes


def column_label(column: str) -> str:
    """The name of a column of the curves, such as "macro-F1, test" for "test/macro_f1"."""
    split, slash, metric = column.rpartition("/")
    return f"{metric_label(metric)}, {split}" if slash else metric_label(column)


def metric_label(metric: str) -> str:
    """The name of a metric, such as "accuracy of few-shot classes" for "few_accuracy"."""
    group, _, rest = metric.partition("_")
    if group in _GROUPS and rest:
        return f"{metric_label(rest)} of {group}-shot classes"
    return METRICS.get(metric, metric.replace("_", " "))


def column_order(column: str) -> tuple[int, int, str]:
    """Sorts columns by metric, the headline first, then by split."""
    split, _, metric = column.rpartition("/")
    names = list(METRICS)
    place = names.index(metric) if metric in names else len(names)
    return place, SPLITS.index(split) if split in SPLITS else len(SPLITS), column


def is_of_a_part(column: str) -> bool:
    """Whether a column belongs to one attention head, or to one step of a distribution: too many for a menu."""
    return bool(re.search(r"\.head_\d+\.|support_to_\d+$", column))


def about(experiment: str) -> str:
    """The description in the first line of conf/experiment/<experiment>.yaml; empty if there is none."""
    file = ROOT / "conf" / "experiment" / f"{experiment}.yaml"
    lines = file.read_text("utf-8").splitlines() if file.is_file() else []
    texts = [line.removeprefix("#").strip() for line in lines if line.startswith("#") and "@package" not in line]
    return texts[0] if texts else ""
