"""α-ReLU: α-entmax with a constant in place of its threshold, unnormalised, and the loss that belongs to it."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from sharmix._arguments import Parameter, checked_number, float_tensor, is_learned
from sharmix._backend import node
from sharmix._operators import watched
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
    if _needs_composition(z, tau) or (z.requires_grad and torch.is_grad_enabled()):
        return _power((alpha - 1) * z - tau, 1 / (alpha - 1)).to(logits.dtype)
    return (_base(z, alpha, tau) ** (1 / (alpha - 1))).to(logits.dtype)


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
    z = float_tensor(logits, "logits", -1)
    graph = node() if label_smoothing == 0 else None
    loss: Tensor | None = graph.alpha_relu_loss(z, alpha, tau, targets, ignore_index, reduction) if graph else None
    if loss is not None:
        return loss
    alpha, tau = _checked(alpha, tau)

    def conjugate(z: Tensor) -> Tensor:
        return _power((alpha - 1) * z - tau, alpha / (alpha - 1)).sum(-1) / alpha

    def entropy(y: Tensor) -> Tensor:
        return alpha_relu_entropy(y, alpha, tau)

    def class_loss(z: Tensor, classes: Tensor) -> Tensor:
        if _needs_composition(z, tau) or watched((classes,)):
            return conjugate(z) - at_class(z, classes) + _at_one_hot(z, alpha, tau)
        one_node: Tensor = _ClassLoss.apply(z, classes, alpha, tau)
        return one_node

    return fenchel_young(z, targets, class_loss, conjugate, entropy, ignore_index, label_smoothing, reduction)


def _needs_composition(logits: Tensor, tau: Parameter) -> bool:
    """Whether more is asked for than values and the logits' gradient."""
    return watched((logits, tau)) or forward_ad._current_level >= 0 or is_learned(tau)


def _at_one_hot(logits: Tensor, alpha: float, tau: Parameter) -> Parameter:
    """Ω of a one-hot vector, as exact as the logits are."""
    return (_typed(tau, logits) + 1 / alpha) / (alpha - 1)


def _typed(tau: Parameter, logits: Tensor) -> Parameter:
    return tau.to(logits.dtype) if isinstance(tau, Tensor) else tau


class _ClassLoss(torch.autograd.Function):
    """In a few passes over the logits, where automatic differentiation makes twenty."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, classes: Tensor, alpha: float, tau: Parameter) -> Tensor:
        base = _base(logits, alpha, tau)
        conjugate = (base ** (alpha / (alpha - 1))).sum(-1) / alpha
        ctx.save_for_backward(logits, classes)
        ctx.alpha, ctx.tau = alpha, tau
        return conjugate - logits.gather(-1, classes.unsqueeze(-1)).squeeze(-1) + _at_one_hot(logits, alpha, tau)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, classes = ctx.saved_tensors
        return _error(logits, classes, grad, ctx.alpha, ctx.tau), None, None, None


def pull_back(
    grad: Tensor, ignore_index: int, count: float, logits: Tensor, targets: Tensor, alpha: float, tau: float
) -> Tensor:
    """The logits' gradient, differentiable itself, of a loss whose rows were divided by `count`."""
    counted = targets != ignore_index
    finite = torch.where(counted.unsqueeze(-1), logits, 0)  # what an ignored row holds, even NaN, must not matter
    grad = torch.where(counted, grad / count, 0)
    return _error(finite, torch.where(counted, targets, 0), grad, alpha, tau)


def _error(logits: Tensor, classes: Tensor, grad: Tensor, alpha: float, tau: Parameter) -> Tensor:
    """grad (p − y), differentiable itself."""
    grad = grad.unsqueeze(-1)
    return (alpha_relu(logits, alpha, tau) * grad).scatter_add_(-1, classes.unsqueeze(-1), -grad)


def _base(logits: Tensor, alpha: float, tau: Parameter) -> Tensor:
    """[(α − 1) z − τ]₊, in two passes."""
    shift = torch.as_tensor(-_typed(tau, logits), dtype=logits.dtype, device=logits.device)
    return torch.add(shift, logits, alpha=alpha - 1).relu_()


def alpha_relu_entropy(weights: Tensor, alpha: float, tau: Parameter) -> Tensor:
    """−Ω(p) = −Σ pⱼ^α/(α(α−1)) − τ Σ pⱼ/(α−1) over the last dimension."""
    return -(_power(weights, alpha).sum(-1) / (alpha * (alpha - 1)) + tau / (alpha - 1) * weights.sum(-1))


def thresholds(logits: Tensor, alpha: float) -> Tensor:
    """The α-entmax threshold τ(z) of each row of logits, in the logits' own coordinates.

        τ(z) = (α − 1) max z − (max p)^{α−1},      p = entmax(z, α)

    Args:
        logits: [..., classes].
        alpha: α > 1.

    Returns:
        [...], NaN or infinite where the row's entmax is not defined.

    Source: Speeding Up Entmax, section 3.1.
    """
    z = float_tensor(logits, "logits", -1)
    return (alpha - 1) * z.amax(-1) - entmax(z, alpha).amax(-1) ** (alpha - 1)


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
