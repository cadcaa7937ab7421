"""The map by bisection: a chain of plain torch operations of fixed length, which any exporter can translate.

It solves the equation g(y) = 0 of `equation` for r ≥ 2 − 1/q, where g rises. It needs float64: if thousands of tied
logits have just joined the support, the rounding errors of all of them add up in their sum.
"""

import torch
from torch import Tensor

from sharmix._arguments import Order, typed

_STEPS = 44  # one large logit over n tied ones magnifies the error of y, (r−1) log(n)/2⁴⁵, by up to n
_LEAST_DELTA = 2.0**-26  # stands for q = 1: the error of log1p(δv)/δ beside v is then that of rounding 1 + δv


def map_by_bisection(logits: Tensor, q: Order, r: Order, temperature: Order) -> Tensor:
    """p* of logits [..., classes], for 1 ≤ q ≤ 2 and r ≥ 2 − 1/q.

    q, r and temperature are numbers, or tensors that broadcast to [..., 1].
    """
    z = logits.double()
    q, r, temperature = (typed(order, z) for order in (q, r, temperature))
    delta = (q - 1).clamp_min(_LEAST_DELTA)
    exponent, of_total, of_mean = 1 / delta, r - q + delta, (q - r) / delta
    x = (z - z.amax(-1, keepdim=True)) * (delta / temperature)

    def weights(y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        shrinkage = (x * (-y).exp()).clamp_min(-1)
        powers = (shrinkage + 1) ** exponent
        return shrinkage, powers, powers.sum(-1, keepdim=True)

    def residual(y: Tensor) -> Tensor:
        shrinkage, powers, total = weights(y)
        mean = (powers * shrinkage).sum(-1, keepdim=True) / total
        return y.addcmul(of_total, total.log()).addcmul(of_mean, mean.log1p())

    most = torch.scalar_tensor(z.shape[-1], dtype=z.dtype, device=z.device).log()
    low, high = -(r - 1).clamp_min(0) * most, (2 - 1 / q - r).clamp_min(0) * most
    y, width = (low + high) / 2, high - low
    for step in range(2, 2 + _STEPS):
        y = y.addcmul(residual(y).sign(), width, value=-(2.0**-step))
    _, powers, total = weights(y)
    return (powers / total).to(logits.dtype)
