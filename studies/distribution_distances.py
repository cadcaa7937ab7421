"""Distances between label distributions, as defined in the literature on label distribution learning.

Source: Geng (2016), Label Distribution Learning. Zeros are treated as in PyLDL: where a metric divides or takes
logarithms, probabilities are at least the machine epsilon.
"""

import numpy as np
from numpy.typing import NDArray

from studies.class_sets import mean_f1

Distributions = NDArray[np.float64]

EPSILON = np.finfo(np.float64).eps


def distribution_distances(true: Distributions, predicted: Distributions) -> dict[str, float]:
    """The means over the examples of the six usual metrics, and the F1 of the supports.

    Args:
        true, predicted: distributions, [n, classes].

    Returns:
        `chebyshev`, `clark`, `canberra` and `kl`, the less the better; `cosine`, `intersection` and `support_f1`, the
        more the better.
    """
    difference = np.abs(true - predicted)
    y, p = (np.clip(one, EPSILON, 1) for one in (true, predicted))
    ratio = np.abs(y - p) / (y + p)
    lengths = np.linalg.norm(true, axis=-1) * np.linalg.norm(predicted, axis=-1)
    values = {
        "chebyshev": difference.max(-1),
        "clark": np.sqrt((ratio**2).sum(-1)),
        "canberra": ratio.sum(-1),
        "kl": (y * np.log(y / p)).sum(-1),
        "cosine": (true * predicted).sum(-1) / lengths,
        "intersection": np.minimum(true, predicted).sum(-1),
    }
    means = {name: float(value.mean()) for name, value in values.items()}
    return means | {"support_f1": mean_f1(predicted > 0, true > 0)}
