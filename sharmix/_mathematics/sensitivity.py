"""The derivatives of the Sharma–Mittal map with respect to its arguments, in closed form (docs/math.md, section 4).

All derivatives are functions of the output p alone, with δ = q − 1. The formulas of docs/math.md divide by δ. Here
the same quantities are written with the entropies of p and of its escort distribution of order 2 − q,

    Uᵢ = log pᵢ + R_{2−q}      âᵢ = pᵢ e^{−δUᵢ} = pᵢ^{2−q}/Σ pⱼ^{2−q}      ṽᵢ = (pᵢ − âᵢ)/δ
    tᵢ = log pᵢ + R_q          ρᵢ = (e^{δtᵢ} − 1)/δ                        Q  = Σ ṽᵢρᵢ

and none of them loses digits as q → 1. The operations are differentiable, so second derivatives follow. The kernels
compute the first derivatives themselves, in csrc/gradients.h and _operators/triton/.
"""

import torch
from torch import Tensor

from sharmix._arguments import Order, typed
from sharmix._mathematics.entropy import renyi_entropy, sharma_mittal_of_renyi
from sharmix._mathematics.series import expm1_ratio, expm1_ratio_slope, expm1_remainder


class ConjugateSensitivity:
    """Derivatives of Ω*(z) = max_p p·z + (T₀/q) H_{q,r}(p) at fixed p (envelope theorem). The derivative by z is p.

    Args:
        p: the map's output, [..., classes].
        q, r, temperature: the parameters of the map that gave p, numbers or [..., 1].
    """

    def __init__(self, p: Tensor, q: Order, r: Order, temperature: Order) -> None:
        self.p = p = p.to(torch.promote_types(p.dtype, torch.float32))
        self.delta = typed(q - 1, p)  # before q is rounded, which would turn 1 + 1e-9 into 1
        self.q, self.r, self.temperature = typed(q, p), typed(r, p), typed(temperature, p)
        # Outside the support every term below has a factor p = 0, so any finite logarithm is right.
        self.log_p = torch.where(p > 0, p, p.amax(-1, keepdim=True)).log()
        self.renyi = renyi_entropy(p, self.log_p, self.delta)
        self.log_ratio = self.log_p + self.renyi

    def conjugate_wrt_q(self) -> Tensor:
        """∂Ω*/∂q = T₀ ∂(H_{q,r}(p)/q)/∂q, [..., 1]."""
        entropy = sharma_mittal_of_renyi(self.renyi, self.r)
        entropy_slope = ((1 - self.r) * self.renyi).exp() * self.renyi_slope()
        return self.temperature * (entropy_slope - entropy / self.q) / self.q

    def conjugate_wrt_r(self) -> Tensor:
        """∂Ω*/∂r = (T₀/q) ∂H_{q,r}(p)/∂r, [..., 1]."""
        return -self.temperature / self.q * self.renyi**2 * expm1_ratio_slope((1 - self.r) * self.renyi)

    def conjugate_wrt_temperature(self) -> Tensor:
        """∂Ω*/∂T₀ = H_{q,r}(p)/q, [..., 1]."""
        return sharma_mittal_of_renyi(self.renyi, self.r) / self.q

    def conjugate_slopes(self) -> Tensor:
        """The derivatives by q, r and T₀, [..., 3]."""
        slopes = (self.conjugate_wrt_q(), self.conjugate_wrt_r(), self.conjugate_wrt_temperature())
        return torch.cat([slope.expand_as(self.p[..., :1]) for slope in slopes], -1)

    def renyi_slope(self) -> Tensor:
        """∂R_q/∂q = −KL(escort of order q ‖ p)/δ², a sum of terms of one sign, [..., 1]."""
        return -(self.p * self.log_ratio**2 * expm1_ratio_slope(self.delta * self.log_ratio)).sum(-1, keepdim=True)


class MapSensitivity(ConjugateSensitivity):
    """Derivatives of the conjugate and of p."""

    def __init__(self, p: Tensor, q: Order, r: Order, temperature: Order) -> None:
        super().__init__(p, q, r, temperature)
        self.escort_log = self.log_p + renyi_entropy(p, self.log_p, -self.delta)
        self.spread = p * self.escort_log * expm1_ratio(-self.delta * self.escort_log)
        self.tilt = self.log_ratio * expm1_ratio(self.delta * self.log_ratio)
        self.feedback = (self.r - self.q) * self.q
        self.stiffness = 1 + self.feedback * (self.spread * self.tilt).sum(-1, keepdim=True)

    def logit_product(self, direction: Tensor) -> Tensor:
        """(∂p/∂z) u = (A/T) [â∘u − â(â·u)] − (κ'/(S T)) ṽ(ṽ·u),  κ' = (r−q)q/(1 + (r−q)qQ);  ∂p/∂z is symmetric.

        A = Σ pᵢ^{2−q} and S = Σ pᵢ^q; T = T₀ exp((q−r) R_q) is the self-consistent temperature.
        """
        escort = self.p * (-self.delta * self.escort_log).exp()
        # A constant in u changes nothing. No digits cancel if u is measured from the class with the largest â, which
        # may be nearly 1.
        direction = direction - direction.gather(-1, escort.argmax(-1, keepdim=True))
        centred = escort * (direction - (escort * direction).sum(-1, keepdim=True))
        log_escort_sum = self.delta * (self.escort_log - self.log_p)
        along = (self.spread * direction).sum(-1, keepdim=True)
        most = torch.finfo(self.p.dtype).max / 1e6  # times feedback it is still no infinity, which times 0 would be NaN
        warmth = ((self.r - 1) * self.renyi).exp().clamp_max(most)  # T₀/(S T)
        rank_one = self.feedback / self.stiffness * warmth * along * self.spread
        cooling = (self.r - self.q) * self.renyi  # log T₀/T, in one exponent with A: each alone can overflow
        return ((log_escort_sum + cooling).exp().clamp_max(most) * centred - rank_one) / self.temperature

    def wrt_q(self) -> Tensor:
        """∂p/∂q = −ṽ [R_q − H₁ − (r−q)(∂R_q/∂q + q Σ pρξ)]/(1 + (r−q)qQ) − p∘(ξ − E_p ξ).

        ξᵢ = (e^{−δUᵢ} − 1 + δUᵢ)/δ²; H₁ is Shannon's entropy.
        """
        curvature = self.escort_log**2 * expm1_remainder(-self.delta * self.escort_log)
        weighted = self.p * curvature
        shannon = -(self.p * self.log_p).sum(-1, keepdim=True)
        response = self.renyi_slope() + self.q * (weighted * self.tilt).sum(-1, keepdim=True)
        heating = (self.renyi - shannon - (self.r - self.q) * response) / self.stiffness
        return self.p * weighted.sum(-1, keepdim=True) - weighted - heating * self.spread

    def wrt_r(self) -> Tensor:
        """∂p/∂r = ṽ R_q/(1 + (r−q)qQ)."""
        return self.spread * self.renyi / self.stiffness

    def wrt_temperature(self) -> Tensor:
        """∂p/∂T₀ = −ṽ/(T₀ (1 + (r−q)qQ))."""
        return -self.spread / self.temperature / self.stiffness
