"""
Temperature: classes enter one by one
=====================================

Probabilities of six classes as the temperature rises. Under softmax every class has a share at every temperature. Under
a sparse map each class has a temperature at which it enters; ``sharmix.conformal.support_scores`` computes it, and the
dotted lines show it.
"""

import matplotlib.pyplot as plt
import torch

import sharmix

logits = torch.tensor([2.0, 1.7, 1.1, 0.6, -0.2, -1.0], dtype=torch.float64)
temperature = torch.logspace(-1, 1, 401, dtype=torch.float64)

figure, panels = plt.subplots(1, 2, sharey=True)
rows = logits.expand(len(temperature), -1)
colours = plt.get_cmap("cividis")(torch.linspace(0.1, 0.95, len(logits)))
maps = [(1, 1, "softmax"), (1.5, 1.75, "SharMiX (1.5, 1.75)")]
for axes, (q, r, name) in zip(panels, maps, strict=True):
    p = sharmix.sharmix(rows, q=q, r=r, temperature=temperature[:, None])
    axes.stackplot(temperature, p.T, colors=colours)
    axes.set(title=name, xlabel="temperature", xscale="log", xlim=(0.1, 10), ylim=(0, 1))
for enters in sharmix.conformal.support_scores(logits, q=q, r=r)[1:]:
    axes.axvline(enters, color="white", linestyle=":")
panels[0].set_ylabel("probabilities, stacked")
plt.show()
