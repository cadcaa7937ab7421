"""The linear model z = W x + b, and the W and b that minimise its loss."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, minimize
from torch import Tensor

from sharmix._activation import Activation

Array = NDArray[Any]


class _Product(torch.autograd.Function):
    """The product features · weights by NumPy or SciPy, since features may be sparse or in read-only memory."""

    @staticmethod
    def forward(ctx: Any, features: Any, weights: Tensor) -> Tensor:
        ctx.features = features
        return torch.from_numpy(features @ weights.numpy())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, torch.from_numpy(ctx.features.T @ gradients[0].numpy())


def outputs(features: Any, coefficients: Tensor, intercepts: Tensor) -> Tensor:
    """The outputs [examples, outputs] for coefficients [inputs, outputs] and intercepts [outputs]."""
    products: Tensor = _Product.apply(features, coefficients)
    return products + intercepts


def class_logits(found: Tensor) -> Tensor:
    """Logits [examples, classes] from outputs; a single output x gives the two logits (−x/2, x/2)."""
    return torch.cat([-found / 2, found / 2], -1) if found.shape[-1] == 1 else found


@dataclass(frozen=True)
class Objective:
    """(Σ sᵢ L(zᵢ, yᵢ) + α/2 ‖W‖²) / Σ sᵢ over examples with weights sᵢ.

    Attributes:
        activation: the output activation, whose loss is L.
        features: [examples, inputs], dense or CSR.
        targets: class indices [examples], or probabilities [examples, classes].
        weights: s, [examples].
        alpha: the strength α of the penalty.
    """

    activation: Activation
    features: Any
    targets: Tensor
    weights: Tensor
    alpha: float

    def value(self, coefficients: Tensor, intercepts: Tensor) -> Tensor:
        logits = class_logits(outputs(self.features, coefficients, intercepts))
        losses = self.activation.loss(logits, self.targets, reduction="none")
        penalty = self.alpha / 2 * coefficients.square().sum()
        return (losses @ self.weights + penalty) / self.weights.sum()

    def minimum(self, width: int, max_iter: int, tol: float) -> tuple[Array, Array, OptimizeResult]:
        """Coefficients [inputs, width] and intercepts [width], by L-BFGS with the options of LogisticRegression."""
        inputs, dtype = self.features.shape[1], self.features.dtype

        def split(flat: Array) -> tuple[Array, Array]:
            coefficients, intercepts = np.split(flat.astype(dtype), [inputs * width])
            return coefficients.reshape(inputs, width), intercepts

        def value_and_gradient(flat: Array) -> tuple[float, Array]:
            variables = [torch.from_numpy(part).requires_grad_() for part in split(flat)]
            value = self.value(*variables)
            gradients = torch.autograd.grad(value, variables)
            return value.item(), np.concatenate([gradient.numpy().ravel() for gradient in gradients]).astype(np.float64)

        found = minimize(
            value_and_gradient,
            np.zeros((inputs + 1) * width),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": max_iter, "maxls": 50, "gtol": tol, "ftol": 64 * np.finfo(dtype).eps},
        )
        return *split(found.x), found
