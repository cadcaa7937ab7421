"""Sample weights: one number for each example."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import _check_sample_weight


def checked_weights(sample_weight: ArrayLike | None, X: Any) -> NDArray[np.float64]:
    """Weights [examples], each 1 for None; ValueError if a weight is below 0, or all are 0."""
    weights: NDArray[np.float64] = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not weights.any():
        raise ValueError("sample_weight is not allowed to be all zero; at least one weight must be above 0")
    return weights
