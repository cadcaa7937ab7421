"""Softmax and sparsemax as maps, computed by the library alone."""

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

import sharmix
from reporting.figures import figure
from reporting.kept_runs import KeptRuns
from reporting.palette import look

MAPS = ("softmax", "sparsemax")


@figure("maps")
def draw_maps(_: KeptRuns) -> Figure:
    """p₁ of the logits (t, 0), and of (t₁, t₂, 0) with the edges where a class has probability 0."""
    result = Figure(figsize=(13, 4.2), layout="constrained")
    line, *planes = result.subplots(1, 3)
    t = torch.linspace(-3, 3, 301, dtype=torch.float64)
    for name in MAPS:
        p = sharmix.build_activation(name)(torch.stack([t, torch.zeros_like(t)], -1))[:, 0]
        line.plot(t, p, color=look(name).colour, label=look(name).label)
    line.set(xlabel="t", ylabel="p₁ of the logits (t, 0)", title="two classes")
    line.legend(frameon=False)
    for name, axes in zip(MAPS, planes, strict=True):
        _draw_three_classes(axes, name, t)
    return result


def _draw_three_classes(axes: Axes, name: str, t: Tensor) -> None:
    first, second = torch.meshgrid(t, t, indexing="xy")
    p = sharmix.build_activation(name)(torch.stack([first, second, torch.zeros_like(first)], -1))
    filled = axes.contourf(t, t, p[..., 0], levels=np.linspace(0, 1, 11), cmap="cividis")
    filled.set_rasterized(True)  # thousands of points otherwise
    support = (p > 0).sum(-1)
    if support.min() < support.max():
        axes.contour(t, t, support, levels=[1.5, 2.5], colors="white", linewidths=1, linestyles=["-", "--"])
        axes.plot([], [], color="0.6", linestyle="-", label="outside: one class")
        axes.plot([], [], color="0.6", linestyle="--", label="inside: all three")
        axes.legend(loc="upper left", fontsize=8)
    axes.figure.colorbar(filled, ax=axes, label="p₁")
    axes.set(xlabel="t₁", ylabel="t₂", title=f"{look(name).label} of (t₁, t₂, 0)", aspect="equal")
