"""The Rényi and Sharma–Mittal entropies. Their limits, such as q → 1, are exact."""

import torch
from torch import Tensor

from sharmix._arguments import Order, checked, classes_last, per_row, typed, widened
from sharmix._mathematics.series import expm1_ratio, log1p_ratio


def sharma_mittal_entropy(probabilities: Tensor, q: Order, r: Order, dim: int = -1) -> Tensor:
    """The Sharma–Mittal entropy of probability vectors.

        H_{q,r}(p) = expm1((1 − r) R_q(p)) / (1 − r),      R_q(p) = log(Σᵢ pᵢ^q) / (1 − q)

    R_q is the Rényi entropy. H_{q,r} is the Rényi entropy for r → 1, the Tsallis entropy for r → q, the Gaussian
    entropy for q → 1, and the Shannon entropy at (1, 1). These limits are exact, and near them no digits are lost.

    Args:
        probabilities: floating point, of any shape, at least 0 and with sum 1 along `dim`.
        q: the order of the power sum, q ≥ 1; a number, or a tensor that broadcasts against the probabilities with size
            1 along `dim`.
        r: the degree, r > 0; a number, or a tensor as for q.
        dim: the dimension that holds the classes.

    Returns:
        The entropy, with the shape of `probabilities` without `dim`; for r = 1 its unit is the nat.

    Raises:
        TypeError: the probabilities are not floating-point numbers.
        ValueError: q, r or a shape is not allowed.

    Source: docs/math.md, section 1; the paper's Eq. (3) misprints the exponent.

    Example:
        >>> sharmix.sharma_mittal_entropy(torch.tensor([0.5, 0.5]), q=1.0, r=1.0)
        tensor(0.6931)
    """
    p = widened(classes_last(probabilities, "probabilities", dim))
    q = per_row(probabilities, dim, checked(q, "q"), "q", of="probabilities")
    r = per_row(probabilities, dim, checked(r, "r"), "r", of="probabilities")
    # A floor far below every probability keeps the logarithm, and its slope at an exact zero, finite.
    log_p = p.clamp_min(torch.finfo(p.dtype).tiny).log()
    renyi = renyi_entropy(p, log_p, typed(q - 1, p))
    return sharma_mittal_of_renyi(renyi, typed(r, p)).squeeze(-1)


def renyi_entropy(p: Tensor, log_p: Tensor, order_minus_one: Tensor) -> Tensor:
    """R_{1+δ}(p) along the last dimension, kept as size 1; δ = `order_minus_one` of either sign.

    The result does not depend on the reference c: R = −c − log1p(Σ p·expm1(δ(log p − c)))/δ for every c. With the
    largest log p as c, the sum stays away from −1, where the logarithm would lose digits.
    """
    reference = log_p.amax(-1, keepdim=True).detach()
    deviation = log_p - reference
    mean = (p * deviation * expm1_ratio(order_minus_one * deviation)).sum(-1, keepdim=True)
    return -reference - mean * log1p_ratio(order_minus_one * mean)


def sharma_mittal_of_renyi(renyi: Tensor, r: Tensor) -> Tensor:
    """H = expm1((1 − r) R)/(1 − r), the Sharma–Mittal entropy from the Rényi entropy R."""
    return renyi * expm1_ratio((1 - r) * renyi)
