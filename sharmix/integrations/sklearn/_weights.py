"""Sample weights: one number for each example."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_array


def checked_weights(sample_weight: ArrayLike | None, examples: int) -> NDArray[np.float64]:
    """Weights [examples], each 1 for None; ValueError if a weight is below 0, or their sum is 0 or not finite."""
    if sample_weight is None:
        return np.ones(examples)
    weights: NDArray[Any] = check_array(sample_weight, dtype=np.float64, ensure_2d=False, input_name="sample_weight")
    if weights.shape != (examples,):
        raise ValueError(f"sample_weight of shape {weights.shape} is not allowed; it must be ({examples},)")
    if (weights < 0).any():
        raise ValueError(f"sample_weight has {weights.min():g}; Negative values are not allowed")
    if not weights.any():
        raise ValueError("sample_weight is not allowed to be all zero; at least one weight must be above 0")
    if not np.isfinite(weights.sum()):
        raise ValueError(f"sample_weight has {weights.max():g}; the sum of the weights must be finite")
    return weights
