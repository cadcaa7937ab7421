"""Sets of classes that score at least a threshold, against sets of true classes: their F1, and the best threshold."""

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]
Sets = NDArray[np.bool_]


def mean_f1(predicted: Sets, true: Sets) -> float:
    """The F1 2 |P ∩ Y| / (|P| + |Y|) of predicted sets P and true sets Y, its mean over the examples.

    Args:
        predicted, true: which classes are in the set of each example, [n, classes]; no true set is empty.
    """
    both = (predicted & true).sum(-1)
    return float((2 * both / (predicted.sum(-1) + true.sum(-1))).mean())


def best_threshold(scores: Scores, true: Sets) -> tuple[float, float]:
    """The threshold t for which the sets {k : score_k ≥ t} have the largest mean F1, and this F1.

    All thresholds that make a difference are tried: a class joins its example's set where t falls to its score.

    Args:
        scores: of each class for each example, [n, classes].
        true: which classes are in the true set of each example, [n, classes]; none is empty.
    """
    order = np.argsort(-scores, axis=-1, kind="stable")
    hits = np.take_along_axis(true, order, -1).cumsum(-1)
    sizes = np.arange(1, scores.shape[-1] + 1)
    f1 = 2 * hits / (sizes + true.sum(-1, keepdims=True))
    gains = np.diff(f1, axis=-1, prepend=0).ravel()  # of each class that joins
    joining = np.take_along_axis(scores, order, -1).ravel()
    thresholds, first = np.unique(-joining, return_inverse=True)
    means = np.bincount(first, weights=gains).cumsum() / len(scores)
    best = int(means.argmax())
    return -float(thresholds[best]), float(means[best])
