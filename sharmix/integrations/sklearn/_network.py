"""Linear layers with ReLU between them, and their training: L-BFGS on all examples at once, or Adam on batches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, minimize
from torch import Tensor
from torch.optim import Optimizer

from sharmix._activation import Activation

Array = NDArray[Any]


@dataclass(frozen=True)
class Examples:
    """Features [examples, inputs], dense or CSR; targets, as class indices or probabilities; weights [examples]."""

    features: Any
    targets: Tensor
    weights: Tensor

    def __len__(self) -> int:
        return len(self.weights)

    def rows(self, indices: Array) -> "Examples":
        return Examples(self.features[indices], self.targets[indices], self.weights[indices])


class _Product(torch.autograd.Function):
    """The product features · weights by NumPy or SciPy, since features may be sparse or in read-only memory."""

    @staticmethod
    def forward(ctx: Any, features: Any, weights: Tensor) -> Tensor:
        ctx.features = features
        return torch.from_numpy(features @ weights.numpy())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, torch.from_numpy(ctx.features.T @ gradients[0].numpy())


def network_outputs(features: Any, layers: Sequence[Tensor]) -> Tensor:
    """Outputs [examples, outputs] of the network; `layers` holds weights, intercepts, weights, intercepts, …"""
    found: Tensor = _Product.apply(features, layers[0]) + layers[1]
    for weights, intercepts in zip(layers[2::2], layers[3::2], strict=True):
        found = found.relu() @ weights + intercepts
    return found


def class_logits(outputs: Tensor) -> Tensor:
    """Logits [examples, classes] from outputs; a single output x gives the two logits (−x/2, x/2)."""
    return torch.cat([-outputs / 2, outputs / 2], -1) if outputs.shape[-1] == 1 else outputs


@dataclass(frozen=True)
class Objective:
    """(Σ sᵢ L(zᵢ, yᵢ) + α/2 Σ ‖W‖²) / Σ sᵢ over examples whose weights s have the sum `weight`."""

    activation: Activation
    alpha: float
    weight: float

    def __call__(self, examples: Examples, layers: Sequence[Tensor], share: float = 1.0) -> Tensor:
        """The objective, estimated from some examples that are the share `share` of all."""
        logits = class_logits(network_outputs(examples.features, layers))
        losses = self.activation.loss(logits, examples.targets, reduction="none")
        penalty = sum((weights.square().sum() for weights in layers[::2]), start=logits.new_zeros(()))
        return (losses @ examples.weights / share + self.alpha / 2 * penalty) / self.weight


def minimise_by_lbfgs(
    objective: Objective, examples: Examples, start: Sequence[Array], max_iter: int, tol: float
) -> tuple[list[Array], OptimizeResult]:
    """The layers at the minimum, by SciPy's L-BFGS-B with the options of scikit-learn's LogisticRegression."""
    dtype, shapes = start[0].dtype, [layer.shape for layer in start]
    ends = np.cumsum([layer.size for layer in start])[:-1]

    def split(flat: Array) -> list[Array]:
        return [part.reshape(shape) for part, shape in zip(np.split(flat.astype(dtype), ends), shapes, strict=True)]

    def value_and_gradient(flat: Array) -> tuple[float, Array]:
        layers = [torch.from_numpy(layer).requires_grad_() for layer in split(flat)]
        value = objective(examples, layers)
        gradients = torch.autograd.grad(value, layers)
        return value.item(), np.concatenate([gradient.numpy().ravel() for gradient in gradients]).astype(np.float64)

    found = minimize(
        value_and_gradient,
        np.concatenate([layer.ravel() for layer in start]).astype(np.float64),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": max_iter, "maxls": 50, "gtol": tol, "ftol": 64 * np.finfo(dtype).eps},
    )
    return split(found.x), found


def epoch(
    objective: Objective, examples: Examples, layers: Sequence[Tensor], optimizer: Optimizer, batches: list[Array]
) -> float:
    """Make one optimizer step for each batch of rows; return the mean of the objective, each value before its step."""
    total = 0.0
    for rows in batches:
        share = len(rows) / len(examples)
        value = objective(examples.rows(rows), layers, share)
        optimizer.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        total += value.item() * share
    return total
