"""
Three classes
=============

Every point of a panel is a row of three logits that sum to 0, and its colour says how many classes get a probability
above 0: one in the corners, two along the edges, all three in the middle. Along a white line the largest probability
is 0.5, 0.7 or 0.9.
"""

import matplotlib.pyplot as plt
import torch
from matplotlib.colors import ListedColormap

import sharmix

x = torch.linspace(-2.2, 2.2, 301, dtype=torch.float64)
across, up = torch.meshgrid(x, x, indexing="xy")
corners = torch.tensor([[0.0, 1.0], [-(3**0.5) / 2, -0.5], [3**0.5 / 2, -0.5]], dtype=torch.float64)
logits = torch.stack([across, up], dim=-1) @ corners.T

figure, panels = plt.subplots(2, 3, figsize=(8, 5.6), sharex=True, sharey=True)
colours = ListedColormap(["#F0E442", "#56B4E9", "#0072B2"])
for axes, (q, r, name) in zip(
    panels.flat,
    [
        (1, 1, "softmax"),
        (1.25, 1.5, "SharMiX (1.25, 1.5)"),
        (1.5, 1.5, "1.5-entmax"),
        (1.5, 2.5, "SharMiX (1.5, 2.5)"),
        (2, 1.5, "SharMiX (2, 1.5)"),
        (2, 2, "sparsemax"),
    ],
    strict=True,
):
    p = sharmix.sharmix(logits, q=q, r=r)
    shown = axes.pcolormesh(x, x, sharmix.support_size(p), cmap=colours, vmin=0.5, vmax=3.5, rasterized=True)
    axes.contour(x, x, p.amax(-1), levels=[0.5, 0.7, 0.9], colors="white", linewidths=0.8)
    axes.set(title=name, aspect="equal", xticks=[], yticks=[])
figure.colorbar(shown, ax=panels, ticks=[1, 2, 3], label="classes with a probability above 0", shrink=0.6)
plt.show()
