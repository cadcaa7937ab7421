"""
Jacobians with exact zeros
==========================

The Jacobian ∂pᵢ/∂zⱼ of the same eight logits under three maps. Rows and columns of classes outside the support are
exactly 0: their logits get no gradient, and change nothing.
"""

import matplotlib.pyplot as plt
import torch

import sharmix

logits = torch.tensor([1.8, 1.4, 1.0, 0.5, 0.0, -0.6, -1.1, -1.9], dtype=torch.float64)
maps = {
    "softmax": sharmix.Softmax(),
    "SharMiX (1.25, 1.5)": sharmix.SharMiX(q=1.25, r=1.5),
    "sparsemax": sharmix.Sparsemax(),
}

figure, panels = plt.subplots(1, len(maps), sharey=True)
for axes, (name, activation) in zip(panels, maps.items(), strict=True):
    jacobian = torch.func.jacrev(activation)(logits)
    zero = jacobian == 0
    jacobian[zero] = torch.nan
    shown = axes.imshow(jacobian, cmap="PuOr_r", vmin=-0.5, vmax=0.5)
    axes.set(title=name, xticks=[], yticks=[])
    axes.set_xlabel(f"{int(zero.sum())} of {zero.numel()} are exactly 0")
panels[0].set_ylabel("∂pᵢ/∂zⱼ")
figure.colorbar(shown, ax=panels)
plt.show()
