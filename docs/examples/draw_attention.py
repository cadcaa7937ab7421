"""
Attention heads from dense to sparse
====================================

The weights of three heads over the same scores. Each head has its own orders (q, r): the first is softmax, the last
sparsemax. White is exactly 0: that key is not read.
"""

import matplotlib.pyplot as plt
import torch

import sharmix

ORDERS = torch.tensor([[1.0, 1.0], [1.25, 1.5], [2.0, 2.0]])

position = torch.arange(24.0)
noise = torch.randn(24, 24, generator=torch.Generator().manual_seed(0))
distance = position[:, None] - position
scores = (noise - distance.abs() / 3).masked_fill(distance < 0, -torch.inf)

heads = sharmix.SharMiX(q=ORDERS[:, :1, None], r=ORDERS[:, 1:, None])
weights = heads(scores.expand(3, 24, 24))

cmap = plt.get_cmap("cividis").with_extremes(bad="white")
figure, panels = plt.subplots(1, 3, sharey=True)
for axes, weight, (q, r) in zip(panels, weights, ORDERS.tolist(), strict=True):
    weight[weight == 0] = torch.nan
    shown = axes.imshow(weight, cmap=cmap, vmin=0, vmax=1)
    axes.set(title=f"q = {q:g}, r = {r:g}", xlabel="key", xticks=[], yticks=[])
panels[0].set_ylabel("query")
figure.colorbar(shown, ax=panels, label="weight")
plt.show()
