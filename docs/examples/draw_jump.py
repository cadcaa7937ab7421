"""
Below r = 2 − 1/q the output jumps
==================================

The probability p₁ of the first of ten classes, as its logit t rises and the others stay at 0, under q = 1.75. Left: a
line for each r, from 1 (dark) to 2. Right: all r. Above the dashed line the map is continuous. Below it p₁ can leap to
1: there the objective can have two maxima, and the map takes the higher one.
"""

import matplotlib.pyplot as plt
import torch

import sharmix

q = 1.75
t = torch.linspace(0, 3, 601, dtype=torch.float64)
r = torch.linspace(1, 2, 201, dtype=torch.float64)
logits = torch.zeros(len(t), 10, dtype=torch.float64)
logits[:, 0] = t
p = sharmix.sharmix(logits.expand(len(r), -1, -1), q=q, r=r[:, None, None])[..., 0]

figure, (lines, plane) = plt.subplots(1, 2)
colours = plt.get_cmap("cividis")
for row in range(0, len(r), 10):
    leaps = p[row].diff(prepend=p[row, :1]) > 0.05
    colour = colours(0.25 + 0.75 * row / len(r))
    lines.plot(t, p[row].masked_fill(leaps, torch.nan), color=colour, linewidth=1.2)
lines.set(xlabel="t", ylabel="p₁")
shown = plane.pcolormesh(t, r, p, cmap="cividis", rasterized=True)
plane.axhline(2 - 1 / q, color="C2", linestyle="--")
plane.text(0.1, 2 - 1 / q + 0.03, "r = 2 − 1/q", color="white")
plane.set(xlabel="t", ylabel="r")
figure.colorbar(shown, ax=plane, label="p₁")
plt.show()
