"""α-ReLU: α-entmax with a constant in place of its threshold, unnormalised, and the loss that belongs to it."""

import math

import torch
from torch import Tensor

from sharmix._arguments import Parameter, checked_number, float_tensor
from sharmix.losses import Reduction, at_class, fenchel_young
from sharmix.maps import entmax


def alpha_relu(logits: Tensor, alpha: float = 1.5, tau: Parameter = 0.3) -> Tensor:
    """The α-ReLU map, elementwise: pᵢ = [(α − 1) zᵢ − τ]₊^{1/(α−1)}.

    Args:
        logits: z, floating point, of any shape; half precision is computed in float32.
        alpha: α > 1.
        tau: τ, the threshold; a number or a tensor of one element.

    Returns:
        Non-negative weights, shaped like `logits`, that need not sum to 1.

    Raises:
        TypeError: the logits are not floating-point numbers.
        ValueError: α or τ is not allowed.

    Source: Tezekbayev et al., Speeding Up Entmax, Eq. (1).
    """
    alpha, tau = _checked(alpha, tau)
    z = float_tensor(logits, "logits", -1)
    return _power((alpha - 1) * z - tau, 1 / (alpha - 1)).to(logits.dtype)


def alpha_relu_loss(
    logits: Tensor,
    targets: Tensor,
    alpha: float = 1.5,
    tau: Parameter = 0.3,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """The loss of α-ReLU whose gradient is p − y.

        ℓ(z, y) = Σ uⱼ^{α/(α−1)}/α − z·y + τ Σ yⱼ/(α−1) + Σ yⱼ^α/(α(α−1)),      u = [(α−1) z − τ]₊

    ℓ ≥ 0, and ℓ = 0 exactly where α-ReLU(z) = y. It is the Fenchel–Young loss of
    Ω(p) = Σ pⱼ^α/(α(α−1)) + τ Σ pⱼ/(α−1) over non-negative p.

    Args:
        logits: z, [..., classes], floating point; half precision is computed, and the loss returned, in float32.
        targets: class indices [...] of an integer type, or probabilities shaped like the logits.
        alpha: α > 1.
        tau: τ, a number or a tensor of one element.
        ignore_index, label_smoothing, reduction: as for `fenchel_young_loss`.

    Returns:
        The loss, a scalar or [...].

    Raises:
        TypeError, ValueError: as for `fenchel_young_loss`.

    Source: `math` section 6. The paper's Eq. (2) has another entropy, and not this gradient.
    """
    alpha, tau = _checked(alpha, tau)
    z = float_tensor(logits, "logits", -1)

    def conjugate(z: Tensor) -> Tensor:
        return alpha_relu_conjugate(z, alpha, tau)

    def entropy(y: Tensor) -> Tensor:
        return alpha_relu_entropy(y, alpha, tau)

    def class_loss(z: Tensor, classes: Tensor) -> Tensor:
        return conjugate(z) - at_class(z, classes) - entropy(z.new_ones(1))

    return fenchel_young(z, targets, class_loss, conjugate, entropy, ignore_index, label_smoothing, reduction)


def alpha_relu_conjugate(logits: Tensor, alpha: float, tau: Parameter) -> Tensor:
    """Ω*(z) = Σ uⱼ^{α/(α−1)}/α over the last dimension; its gradient is α-ReLU."""
    return _power((alpha - 1) * logits - tau, alpha / (alpha - 1)).sum(-1) / alpha


def alpha_relu_entropy(weights: Tensor, alpha: float, tau: Parameter) -> Tensor:
    """−Ω(p) = −Σ pⱼ^α/(α(α−1)) − τ Σ pⱼ/(α−1) over the last dimension."""
    return -(_power(weights, alpha).sum(-1) / (alpha * (alpha - 1)) + tau / (alpha - 1) * weights.sum(-1))


def mean_threshold(logits: Tensor, alpha: float) -> Tensor:
    """The mean α-entmax threshold τ(z) of rows of logits, in the logits' own coordinates.

        τ(z) = (α − 1) max z − (max p)^{α−1},      p = entmax(z, α)

    Args:
        logits: [rows, classes]; rows without a finite threshold are left out.
        alpha: α > 1.

    Returns:
        A scalar, NaN if no row has a finite threshold.

    Source: Speeding Up Entmax, section 3.1.
    """
    z = float_tensor(logits, "logits", -1)
    threshold = (alpha - 1) * z.amax(-1) - entmax(z, alpha).amax(-1) ** (alpha - 1)
    return torch.where(threshold.isfinite(), threshold, math.nan).nanmean()


def _checked(alpha: float, tau: Parameter) -> tuple[float, Parameter]:
    alpha = checked_number(alpha, "alpha of alpha-ReLU")
    if not isinstance(tau, Tensor):
        return alpha, checked_number(tau, "tau")
    if tau.numel() != 1:
        raise ValueError(f"tau of shape {tuple(tau.shape)} is not allowed; it must be a number or hold one element")
    return alpha, tau.reshape(())


def _power(base: Tensor, exponent: float) -> Tensor:
    """[base]₊^exponent, with slope 0 wherever it is 0 and NaN kept."""
    outside = base <= 0
    return torch.where(outside, 0, torch.where(outside, 1, base) ** exponent)
