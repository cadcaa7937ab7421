"""A network with one hidden layer, fitted to distributions by the Fenchel–Young loss of its output activation."""

from itertools import pairwise
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from sharmix import Activation

Array = NDArray[Any]


class HiddenLayer:
    """The network with the least Σ L(zᵢ, yᵢ) + α/2 Σ ‖W‖², as L-BFGS finds it from weights that a seed draws.

        z = relu(x W₁ + b₁) W₂ + b₂

    Args:
        activation: the output activation, whose loss is L.
        units: the number of units of the hidden layer.
        alpha: the strength α of the penalty on the weights, without the intercepts.
        seed: the seed of the first weights, which are drawn as in Glorot and Bengio (2010).
        max_iter: the largest number of iterations.
        tol: the solver stops when the largest derivative of the objective, per example, is below this number.
    """

    def __init__(
        self, activation: Activation, units: int, *, alpha: float, seed: int, max_iter: int, tol: float
    ) -> None:
        self.activation, self.units, self.alpha = activation, units, alpha
        self.seed, self.max_iter, self.tol = seed, max_iter, tol

    def fit(self, features: Array, targets: Array) -> Self:
        """Train the network on features, float32 [examples, inputs], and distributions [examples, classes]."""
        y, ones = torch.from_numpy(targets.astype(np.float32)), torch.ones(len(features))
        start = self._first_layers([features.shape[1], self.units, targets.shape[1]])
        ends = np.cumsum([layer.size for layer in start])[:-1]

        def layers_of(flat: Array) -> list[Tensor]:
            parts = np.split(flat.astype(np.float32), ends)
            return [torch.from_numpy(part.reshape(first.shape)) for part, first in zip(parts, start, strict=True)]

        def value_and_gradient(flat: Array) -> tuple[float, Array]:
            layers = [layer.requires_grad_() for layer in layers_of(flat)]
            losses = self.activation.loss(_logits(features, *layers), y, reduction="none")
            penalty = layers[0].square().sum() + layers[2].square().sum()
            value = (losses @ ones + self.alpha / 2 * penalty) / len(features)
            gradients = torch.autograd.grad(value, layers)
            return value.item(), np.concatenate([gradient.numpy().ravel() for gradient in gradients]).astype(float)

        found = minimize(
            value_and_gradient,
            np.concatenate([layer.ravel() for layer in start]).astype(float),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": self.max_iter, "maxls": 50, "gtol": self.tol, "ftol": 64 * np.finfo(np.float32).eps},
        )
        self.layers = layers_of(found.x)
        return self

    def predict_proba(self, features: Array) -> Array:
        """The probabilities [examples, classes] for features, float32 [examples, inputs]."""
        return self.activation(_logits(features, *self.layers)).numpy()

    def _first_layers(self, sizes: list[int]) -> list[Array]:
        """W₁, b₁, W₂ and b₂."""
        generator = np.random.RandomState(self.seed)
        layers = []
        for fan_in, fan_out in pairwise(sizes):
            bound = (6 / (fan_in + fan_out)) ** 0.5
            weights = generator.uniform(-bound, bound, (fan_in, fan_out)).astype(np.float32)
            layers += [weights, np.zeros(fan_out, np.float32)]
        return layers


class _Product(torch.autograd.Function):
    """The product features · weights by NumPy: torch rounds it differently, and L-BFGS would end at another minimum."""

    @staticmethod
    def forward(ctx: Any, features: Array, weights: Tensor) -> Tensor:
        ctx.features = features
        return torch.from_numpy(features @ weights.numpy())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        return None, torch.from_numpy(ctx.features.T @ gradient.numpy())


def _logits(x: Array, weights: Tensor, intercepts: Tensor, of_outputs: Tensor, outputs: Tensor) -> Tensor:
    return (_Product.apply(x, weights) + intercepts).relu() @ of_outputs + outputs
