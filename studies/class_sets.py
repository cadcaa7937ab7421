"""Predicted sets of the classes above a threshold: their F1, and the threshold with the best F1."""

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import f1_score

Scores = NDArray[np.float64]
Sets = NDArray[np.bool_]


def mean_f1(predicted: Sets, true: Sets) -> float:
    """The mean over examples of the F1 of predicted and true sets, each [n, classes]. No true set is empty."""
    return float(f1_score(true, predicted, average="samples", zero_division=0))


def best_threshold(scores: Scores, true: Sets) -> tuple[float, float]:
    """The threshold t for which the sets {k : score_k ≥ t} have the largest mean F1, and this F1.

    A class joins its set when t falls to the score of the class. So every score is tried as a threshold.

    Args:
        scores: the score of each class for each example, [n, classes].
        true: whether a class is in the true set of an example, [n, classes]. No set is empty.
    """
    order = np.argsort(-scores, axis=-1, kind="stable")
    hits = np.take_along_axis(true, order, -1).cumsum(-1)
    sizes = np.arange(1, scores.shape[-1] + 1)
    f1 = 2 * hits / (sizes + true.sum(-1, keepdims=True))
    gains = np.diff(f1, axis=-1, prepend=0).ravel()  # of each class when it joins
    joining = np.take_along_axis(scores, order, -1).ravel()
    thresholds, first = np.unique(-joining, return_inverse=True)
    means = np.bincount(first, weights=gains).cumsum() / len(scores)
    best = int(means.argmax())
    return -float(thresholds[best]), float(means[best])
