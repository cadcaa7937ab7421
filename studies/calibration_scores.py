"""Scores of predicted probabilities against labels, each a mean over the examples."""

import numpy as np
import torch
from sklearn.metrics import brier_score_loss, log_loss
from torch import Tensor
from torchmetrics.functional.classification import multiclass_calibration_error

BELOW_ONE = 1 - torch.finfo(torch.float32).eps / 2  # the largest float32 below 1


def calibration_scores(probabilities: Tensor, labels: Tensor, bins: int) -> dict[str, float]:
    """Scores of probabilities.

    Args:
        probabilities: [n, classes], each row summing to 1.
        labels: class indices, [n].
        bins: number of bins of equal width, of the calibration error.

    Returns:
        `brier`, the mean of Σ (pᵢ − yᵢ)²; `nll`, the mean of −log p_y with p_y at least the machine epsilon of float64,
        as scikit-learn has it; `zero_labels`, the share of examples with p_y = 0; `ece`, the expected calibration error
        of the largest probability; `aurc`, the area under the risk–coverage curve; `accuracy`; and `support`, the mean
        number of classes with p > 0.
    """
    probabilities = probabilities.clamp(0, 1)  # rounding can leave 1 + 2e-16, which scikit-learn refuses
    p, y, classes = probabilities.numpy(), labels.numpy(), range(probabilities.shape[-1])
    confidence, predicted = probabilities.max(-1)
    wrong = predicted != labels
    below_one = probabilities.float().clamp_max(BELOW_ONE)  # torchmetrics has a bin of its own for exactly 1
    return {
        "brier": float(brier_score_loss(y, p, labels=classes, scale_by_half=False)),
        "nll": float(log_loss(y, p, labels=classes)),
        "zero_labels": float((p[np.arange(len(y)), y] == 0).mean()),
        "ece": multiclass_calibration_error(below_one, labels, len(classes), bins).item(),
        "aurc": risk_coverage_area(confidence.numpy(), wrong.numpy()),
        "accuracy": 1 - wrong.double().mean().item(),
        "support": (probabilities > 0).sum(-1).double().mean().item(),
    }


def risk_coverage_area(confidence: np.ndarray, wrong: np.ndarray) -> float:
    """The mean error rate of the k most confident predictions, over k = 1, …, n.

    Predictions with equal confidence have no order. The result is the expectation over all their orders.

    Args:
        confidence: of each prediction, [n].
        wrong: whether it is wrong, [n].

    Source: Geifman, Uziel and El-Yaniv (2019), Bias-Reduced Uncertainty Estimation for Deep Neural Classifiers.
    """
    _, group, sizes = np.unique(-confidence, return_inverse=True, return_counts=True)
    rates = np.bincount(group, weights=wrong) / sizes  # of the predictions with equal confidence
    errors = np.repeat(rates, sizes).cumsum()
    return float((errors / np.arange(1, len(wrong) + 1)).mean())
