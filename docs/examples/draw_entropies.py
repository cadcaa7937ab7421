"""
Entropies that give exact zeros
===============================

The entropy that each map adds to p·z, for two classes. Where its slope at p₁ = 0 and p₁ = 1 is finite, a large enough
difference of the logits outweighs it, and the map gives exactly 0. Softmax's slope is infinite there.
"""

import matplotlib.pyplot as plt
import torch

import sharmix

p = torch.linspace(0, 1, 501, dtype=torch.float64)
for q, r, name in [
    (1, 1, "softmax (Shannon)"),
    (1.25, 1.5, "SharMiX (1.25, 1.5)"),
    (1.5, 1, "Rényi (1.5, 1)"),
    (1.5, 1.5, "1.5-entmax (Tsallis)"),
    (2, 2, "sparsemax (Gini)"),
]:
    entropy = sharmix.sharma_mittal_entropy(torch.stack([p, 1 - p], dim=-1), q, r) / q
    plt.plot(p, entropy, label=name)
plt.xlabel("p₁")
plt.ylabel("entropy, H/q")
plt.legend(loc="upper left", bbox_to_anchor=(1, 1))
plt.show()
