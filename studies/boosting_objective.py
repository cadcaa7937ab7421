"""LightGBM's objective for an activation: its Fenchel–Young loss on raw scores."""

from typing import Any

import lightgbm
import numpy as np
import torch
from torch import Tensor

import sharmix


class Objective:
    """The Fenchel–Young loss of an activation, for `lightgbm.train`.

        gradient = p − y,      Hessian = max(diag ∂p/∂z, floor),      p = activation(z), z the raw scores

    Args:
        activation: the name of softmax, or of an activation with orders q and r.
        hessian_floor: the least second derivative for a row and class. The derivative is 0 for a class of probability
            0, and a leaf that holds only such rows would take an infinite step. With the floor a step is at most
            1/floor before the learning rate.
        **parameters: the parameters of the activation, such as q and r.

    Source: docs/math.md, sections 4 and 5.
    """

    def __init__(self, activation: str, *, hessian_floor: float, **parameters: Any) -> None:
        self.activation = sharmix.build_activation(activation, **parameters)
        self.hessian_floor = hessian_floor
        is_softmax = isinstance(self.activation, sharmix.Softmax)
        self.orders = (1.0, 1.0, 1.0) if is_softmax else self.activation.orders()

    def __call__(self, raw_scores: np.ndarray, data: lightgbm.Dataset) -> tuple[np.ndarray, np.ndarray]:
        """Gradient and Hessian, float32 [rows, classes], from raw scores [rows, classes] and the labels of the data."""
        p = self.activation(torch.from_numpy(raw_scores))
        labels = torch.from_numpy(data.get_label()).long().unsqueeze(-1)
        gradient = p.scatter_add(-1, labels, -torch.ones_like(p[:, :1]))
        hessian = logit_diagonal(p, *self.orders).clamp_min(self.hessian_floor)
        return gradient.float().numpy(), hessian.float().numpy()

    def probabilities(self, raw_scores: np.ndarray) -> np.ndarray:
        """The activation's output, for raw scores [rows, classes]."""
        return self.activation(torch.from_numpy(raw_scores)).numpy()


def logit_diagonal(p: Tensor, q: float, r: float, temperature: float) -> Tensor:
    """The diagonal of ∂p/∂z alone, (A/T) âᵢ(1 − âᵢ) − (κ'/(S T)) ṽᵢ², [..., classes].

    Args:
        p: the map's output, float64 [..., classes].
        q, r, temperature: the parameters that gave it.
    """
    delta = max(q - 1, 1e-9)  # nearer to 1 nothing changes any more
    log_p = torch.where(p > 0, p, 1).log()
    renyi_of_escort = (p * (-delta * log_p).expm1()).sum(-1, keepdim=True).log1p() / delta  # R_{2−q}
    renyi = (p * (delta * log_p).expm1()).sum(-1, keepdim=True).log1p() / -delta
    less = (-delta * (log_p + renyi_of_escort)).expm1()
    escort = p + p * less
    diagonal = (delta * renyi_of_escort + (r - q) * renyi).exp() * escort * (1 - escort)
    if r != q:
        spread, tilt = p * less / -delta, (delta * (log_p + renyi)).expm1() / delta
        feedback = (r - q) * q
        stiffness = 1 + feedback * (spread * tilt).sum(-1, keepdim=True)
        diagonal -= feedback / stiffness * ((r - 1) * renyi).exp() * spread**2
    return diagonal / temperature
