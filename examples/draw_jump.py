"""
Where the output jumps
======================

For r < 2 − 1/q the objective that the map maximises can have two maxima: one inside the simplex, one in a corner. Left:
this objective for two classes with logits (t, 0), less its value in the corner p₁ = 1. As *t* grows, the corner
overtakes the inner maximum. The map returns the higher one, which a ring marks. Right: its output jumps to 1 where the
two are equal. With r at 2 − 1/q or above there is no jump.
"""

import matplotlib.pyplot as plt
import torch

import sharmix

Q, R = 2.0, 0.5
p = torch.linspace(0.55, 1, 1001, dtype=torch.float64)
entropy = sharmix.sharma_mittal_entropy(torch.stack([p, 1 - p], dim=-1), Q, R)

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
for t in (1.03, 1.0634, 1.1):
    objective = p * t + entropy / Q - t
    (line,) = left.plot(p, objective, label=f"t = {t:.2f}")
    best = objective.argmax()
    left.plot(p[best], objective[best], "o", markerfacecolor="white", color=line.get_color(), clip_on=False)
left.set(xlabel="p₁", ylabel=f"objective at (q, r) = ({Q:g}, {R:g})")
left.legend()

t = torch.linspace(-0.2, 1.6, 1801, dtype=torch.float64)
logits = torch.stack([t, torch.zeros_like(t)], dim=-1)
for r in (2, 2 - 1 / Q, R):
    output = sharmix.sharmix(logits, q=Q, r=r)[:, 0]
    output[1:][output.diff() > 0.1] = torch.nan  # no line across the jump
    right.plot(t, output, label=f"r = {r:g}")
right.set(xlabel="t", ylabel=f"p₁ of the logits (t, 0) at q = {Q:g}")
right.legend()
plt.show()
