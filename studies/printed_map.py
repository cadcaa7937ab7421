"""The map and the Jacobian as the SharMiX paper prints them, to compare with its numbers. It is not our SharMiX."""

from typing import Literal

import torch
from torch import Tensor

import sharmix
from sharmix import Activation


class PrintedSharMiX(Activation):
    """Softmax over F = log max(u, ε) / (q − 1) with u = (q − 1)(z − τ), under the log loss −log p_y.

    Outside the support p is then ε^(1/(q−1)) over the normaliser, which is 0 only where the dtype rounds it to 0.

    Args:
        q, r: the orders, fixed. With `threshold="entmax"` the map does not depend on r.
        clamp: ε.
        threshold: `solved`: τ is that of our SharMiX; `entmax`: the τ of (q − 1) z that the entmax package finds.
        jacobian: `true`, or `printed`: sᵢ (δᵢⱼ − sⱼ / Σ s) with s = p^(2−q), Eq. 21, which holds for r = q only.

    Source: Learning When to Be Sparse, appendix C, Eq. 10 to 12 and 21.
    """

    def __init__(
        self,
        q: float,
        r: float,
        clamp: float = 1e-8,
        threshold: Literal["solved", "entmax"] = "solved",
        jacobian: Literal["true", "printed"] = "true",
    ) -> None:
        super().__init__()
        self.q, self.r, self.clamp, self.threshold, self.jacobian = q, r, clamp, threshold, jacobian

    def probabilities(self, logits: Tensor) -> Tensor:
        p = self.printed(logits)
        if self.jacobian == "true" or not logits.requires_grad:
            return p
        s = p.detach() ** (2 - self.q)
        p = p.detach() + (logits - logits.detach())  # the values of p; its gradient is computed by the hook
        p.register_hook(
            lambda gradient: s * (gradient - (s * gradient).sum(-1, keepdim=True) / s.sum(-1, keepdim=True))
        )
        return p

    def printed(self, logits: Tensor) -> Tensor:
        if self.threshold == "solved":
            # On the support p^(q−1) = u up to the temperature, which the softmax over F removes.
            u = sharmix.sharmix(logits, self.q, self.r) ** (self.q - 1)
        else:
            p = sharmix.entmax(logits, alpha=self.q)
            threshold = (self.q - 1) * logits.amax(-1, keepdim=True) - p.amax(-1, keepdim=True) ** (self.q - 1)
            u = (self.q - 1) * (logits - threshold.detach())
        return softmax_of_logarithm(u, self.q, self.clamp)

    def entropy(self, probabilities: Tensor) -> Tensor:
        return sharmix.sharma_mittal_entropy(probabilities, self.q, self.r) / self.q

    def class_loss(self, logits: Tensor, targets: Tensor, ignore_index: int, reduction: str) -> Tensor:
        p = self.probabilities(logits).gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        losses = -p.clamp_min(torch.finfo(p.dtype).tiny).log()
        return losses if reduction == "none" else losses.mean()


def softmax_of_logarithm(u: Tensor, q: float, clamp: float) -> Tensor:
    """softmax over log max(u, clamp) / (q − 1)."""
    return (u.clamp_min(clamp).log() / (q - 1)).softmax(-1)
