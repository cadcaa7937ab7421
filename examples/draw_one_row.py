"""
One row of logits under four maps
=================================

The same ten logits under softmax, SharMiX, 1.5-entmax and sparsemax. A ring on the axis marks a class whose probability
is exactly 0. Softmax has none; the sparser the map, the more classes drop out.
"""

import matplotlib.pyplot as plt
import torch

import sharmix

logits = torch.tensor([2.2, 1.6, 1.3, 0.6, 0.2, -0.1, -0.5, -0.9, -1.4, -2.0])
maps = {
    "softmax": sharmix.Softmax(),
    "SharMiX (1.25, 1.5)": sharmix.SharMiX(q=1.25, r=1.5),
    "1.5-entmax": sharmix.Entmax(alpha=1.5),
    "sparsemax": sharmix.Sparsemax(),
}
classes = torch.arange(len(logits))

figure, panels = plt.subplots(1, len(maps), figsize=(10, 2.8), sharey=True)
for axes, (name, activation) in zip(panels, maps.items(), strict=True):
    p = activation(logits)
    zero = p == 0
    axes.bar(classes, p, color="C1")
    axes.scatter(classes[zero], p[zero], s=18, facecolor="white", edgecolor="C3", clip_on=False, zorder=3)
    axes.set(title=name, xlabel=f"{int(zero.sum())} of {len(p)} are exactly 0", xticks=[])
panels[0].set_ylabel("probability")
plt.show()
