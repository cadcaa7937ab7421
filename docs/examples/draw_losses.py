"""
Where a loss is exactly 0
=========================

The loss of three classes whose first, at the top, is the right one. Every point of a panel is a row of three logits
that sum to 0. In the white part a sparse loss and its gradient are exactly 0: the right class leads by a margin, and
the example trains nothing more. Cross-entropy has no such part.
"""

import matplotlib.pyplot as plt
import torch

import sharmix

x = torch.linspace(-3, 3, 301, dtype=torch.float64)
across, up = torch.meshgrid(x, x, indexing="xy")
half = 3**0.5 / 2
corners = torch.tensor([[0, 1], [-half, -0.5], [half, -0.5]], dtype=torch.float64)
logits = torch.stack([across, up], dim=-1) @ corners.T
right_class = torch.zeros(logits.shape[:-1], dtype=torch.long)

cmap = plt.get_cmap("cividis").with_extremes(bad="white")
figure, panels = plt.subplots(1, 3, sharey=True)
names = ("softmax: cross-entropy", "SharMiX (1.5, 1.75)", "sparsemax")
for axes, name, (q, r) in zip(panels, names, [(1, 1), (1.5, 1.75), (2, 2)], strict=True):
    loss = sharmix.fenchel_young_loss(logits, right_class, q=q, r=r, reduction="none")
    loss[loss == 0] = torch.nan
    shown = axes.pcolormesh(x, x, loss, cmap=cmap, vmin=0, vmax=5, rasterized=True)
    axes.set(title=name, aspect="equal", xticks=[], yticks=[])
    for corner, label in zip(corners * 2.5, ("right", "wrong", "wrong"), strict=True):
        colour = "0.2" if label == "right" and q > 1 else "white"
        axes.text(*corner, label, ha="center", color=colour)
figure.colorbar(shown, ax=panels, label="loss")
plt.show()
