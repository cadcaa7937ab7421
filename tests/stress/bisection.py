"""The map, its entropy and its loss by bisection in double precision, without any code of the library.

An inner bisection finds the threshold for a given temperature T. An outer bisection solves T = T₀ exp((q − r) R_q(p)).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

HALVINGS = 56  # of an interval; a double has 53 bits
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Orders:
    """The orders q and r and the temperature T₀, the same for all rows."""

    q: float
    r: float
    temperature: float

    def renyi(self, p: Array) -> Array:
        """R_q of each row [rows, 1]."""
        log_p = np.log(np.where(p > 0, p, 1))
        if self.q - 1 < 1e-8:
            return -(p * log_p).sum(-1, keepdims=True)
        powers = np.where(p > 0, np.exp(self.q * log_p), 0)
        return np.log(powers.sum(-1, keepdims=True)) / (1 - self.q)

    def entropy(self, p: Array) -> Array:
        """(T₀/q) H_{q,r} of each row."""
        renyi, gap = self.renyi(p)[..., 0], 1 - self.r
        value = renyi if abs(gap) < 1e-12 else np.expm1(gap * renyi) / gap
        return value * self.temperature / self.q

    def entmax(self, x: Array, heat: Array) -> Array:
        """pᵢ = [1 + (q − 1)(xᵢ − μ)/T]₊^{1/(q−1)} on the simplex, for x ≤ 0 [rows, classes] and T [rows, 1]."""
        gap = max(self.q - 1, 1e-12)

        def powers(threshold: Array) -> Array:
            weight = gap * (x - threshold) / heat
            inside = weight > -1
            return np.where(inside, np.exp(np.log1p(np.where(inside, weight, 0)) / gap), 0)

        low, high = np.zeros_like(heat), heat * -np.expm1(-gap * math.log(x.shape[-1])) / gap
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            above = powers(middle).sum(-1, keepdims=True) > 1
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        p = powers((low + high) / 2)
        return p / p.sum(-1, keepdims=True)

    def map(self, logits: Array) -> Array:
        """p* of logits [rows, classes], which are finite or −∞, for orders in the concave region."""
        x = logits - logits.max(-1, keepdims=True)
        feedback = self.q - self.r
        span = feedback * math.log(x.shape[-1])
        low, high = (np.full((len(x), 1), end) for end in (min(span, 0), max(span, 0)))
        for _ in range(HALVINGS if span else 1):
            middle = (low + high) / 2
            p = self.entmax(x, self.temperature * np.exp(middle))
            below = middle < feedback * self.renyi(p)
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return self.entmax(x, self.temperature * np.exp((low + high) / 2))

    def loss(self, logits: Array, targets: Array) -> Array:
        """L(z, y) of each row, for targets [rows, classes] on the simplex."""
        p = self.map(logits)
        difference = np.where(p == targets, 0, p - targets)
        linear = (difference * np.where(difference == 0, 0, logits)).sum(-1)
        return linear + self.entropy(p) - self.entropy(targets)
