"""
Two classes
===========

The probability of the first of two classes, as a function of the difference *t* between their logits. Where a curve
reaches 0 or 1, the map has left a class out: its probability is exactly 0. Softmax never does.
"""

import matplotlib.pyplot as plt
import torch

import sharmix

t = torch.linspace(-3, 3, 601, dtype=torch.float64)
logits = torch.stack([t, torch.zeros_like(t)], dim=-1)

for q, r, name in [
    (1, 1, "softmax"),
    (1.25, 1.5, "SharMiX (1.25, 1.5)"),
    (1.5, 1.5, "1.5-entmax"),
    (1.5, 2, "SharMiX (1.5, 2)"),
    (2, 1.5, "SharMiX (2, 1.5)"),
    (2, 2, "sparsemax"),
]:
    plt.plot(t, sharmix.sharmix(logits, q=q, r=r)[:, 0], label=name)

plt.xlabel("t")
plt.ylabel("p₁ of the logits (t, 0)")
plt.legend(frameon=False)
plt.show()
