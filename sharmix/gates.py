"""Gates: the probability of one class beside a second one whose logit is 0, elementwise, as functions and modules."""

from torch import Tensor, nn

from sharmix._arguments import dense_numbers, widened


def sparsemoid(logits: Tensor) -> Tensor:
    """The sparse sigmoid of sparsemax: the first probability of sparsemax of the two logits (z, 0), elementwise.

        p = min(max((z + 1)/2, 0), 1)

    Args:
        logits: z, floating point, of any shape. Half precision is computed in float32.

    Returns:
        p, with the shape and dtype of `logits`: 0 for z ≤ −1, 1 for z ≥ 1. Its gradient is ½ between them. At −1 and 1
        it is that of torch's `clamp`: 0 or ½, by the version of torch.

    Raises:
        TypeError: the logits are not floating-point numbers.

    Source: `sparsemoid` of Popov, Morozov and Babenko (2019), Neural Oblivious Decision Ensembles (NODE).

    Example:
        >>> sharmix.sparsemoid(torch.tensor([-1.5, 0.0, 0.5]))
        tensor([0.0000, 0.5000, 0.7500])
    """
    z = widened(dense_numbers(logits, "logits"))
    return ((z + 1) / 2).clamp(0, 1).to(logits.dtype)


def entmoid(logits: Tensor) -> Tensor:
    """The sparse sigmoid of 1.5-entmax: the first probability of 1.5-entmax of the two logits (z, 0), elementwise.

        p = (c + √(8 − c²))²/16,     c = min(max(z, −2), 2)

    Args:
        logits: z, floating point, of any shape. Half precision is computed in float32.

    Returns:
        p, with the shape and dtype of `logits`: 0 for z ≤ −2, 1 for z ≥ 2. Its gradient has no jump. The error of p
        is at most 2.4e-7 in float32 and 4.5e-16 in float64, so a small p has fewer digits.

    Raises:
        TypeError: the logits are not floating-point numbers.

    Source: `entmoid15` of Popov, Morozov and Babenko (2019), Neural Oblivious Decision Ensembles (NODE).

    Example:
        >>> sharmix.entmoid(torch.tensor([-2.5, 0.0, 1.0]))
        tensor([0.0000, 0.5000, 0.8307])
    """
    c = widened(dense_numbers(logits, "logits")).clamp(-2, 2)
    return (((8 - c.square()).sqrt() + c).square() / 16).to(logits.dtype)


class Sparsemoid(nn.Module):
    """`sparsemoid` as a module.

        p = min(max((z + 1)/2, 0), 1)

    Shape:
        logits (*); p the same.

    Example:
        >>> sharmix.Sparsemoid()(torch.tensor([-1.5, 0.0, 0.5]))
        tensor([0.0000, 0.5000, 0.7500])
    """

    def forward(self, logits: Tensor) -> Tensor:
        """`sparsemoid` of the logits."""
        return sparsemoid(logits)


class Entmoid(nn.Module):
    """`entmoid` as a module.

        p = (c + √(8 − c²))²/16,     c = min(max(z, −2), 2)

    Shape:
        logits (*); p the same.

    Example:
        >>> sharmix.Entmoid()(torch.tensor([-2.5, 0.0, 1.0]))
        tensor([0.0000, 0.5000, 0.8307])
    """

    def forward(self, logits: Tensor) -> Tensor:
        """`entmoid` of the logits."""
        return entmoid(logits)
