"""
Losses and their gradients
==========================

The Fenchel–Young loss of two classes whose first is the right one, and its derivative, by the difference *t* of the
logits. Under softmax the loss never reaches 0. Under a sparse map it is exactly 0 from a margin on, and so is its
gradient: an example beyond the margin trains nothing.
"""

import matplotlib.pyplot as plt
import torch

import sharmix

t = torch.linspace(-3, 5, 801, dtype=torch.float64, requires_grad=True)
logits = torch.stack([t, torch.zeros_like(t)], dim=-1)
right_class = torch.zeros(len(t), dtype=torch.long)

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
for q, r, name in [
    (1, 1, "softmax: cross-entropy"),
    (1.25, 1.5, "SharMiX (1.25, 1.5)"),
    (1.5, 1.5, "1.5-entmax"),
    (2, 2, "sparsemax"),
]:
    loss = sharmix.fenchel_young_loss(logits, right_class, q=q, r=r, reduction="none")
    (slope,) = torch.autograd.grad(loss.sum(), t, retain_graph=True)
    left.plot(t.detach(), loss.detach(), label=name)
    right.plot(t.detach(), slope)
left.set(xlabel="t", ylabel="loss")
right.set(xlabel="t", ylabel="derivative of the loss, p₁ − 1")
left.legend()
plt.show()
