"""
How many classes survive
========================

The number of classes with a probability above 0, for every pair of orders, on one row of 20 logits. *q* decides how
many classes survive; *r* changes how far the temperature follows the uncertainty of the output, and with it their
number. Below the line r = 2 − 1/q the objective can have several maxima, and the map can jump.
"""

import matplotlib.pyplot as plt
import torch

import sharmix

logits = torch.randn(20, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
q = torch.linspace(1, 2.2, 97, dtype=torch.float64)
r = torch.linspace(0.6, 2.2, 129, dtype=torch.float64)
pairs = torch.cartesian_prod(r, q)
p = sharmix.sharmix(logits.expand(len(pairs), -1), q=pairs[:, 1:], r=pairs[:, :1])
survivors = sharmix.support_size(p).reshape(len(r), len(q))

plt.pcolormesh(q, r, survivors, cmap="cividis", shading="nearest", rasterized=True)
plt.colorbar(label="classes with a probability above 0, of 20")
plt.plot(q, 2 - 1 / q, color="white", linestyle="--")
plt.text(2.05, 1.43, "r = 2 − 1/q", color="white", ha="center")
for name, at in {"softmax": (1, 1), "1.5-entmax": (1.5, 1.5), "sparsemax": (2, 2), "SharMiX": (1.25, 1.5)}.items():
    plt.plot(*at, "o", color="white", markeredgecolor="black", clip_on=False)
    colour = "black" if name == "softmax" else "white"
    plt.annotate(
        name, at, xytext=(0, 7), textcoords="offset points", color=colour, ha="left" if at[0] == 1 else "center"
    )
plt.xlabel("q")
plt.ylabel("r")
plt.show()
