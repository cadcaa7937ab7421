"""What maps and losses look like, computed by the library alone: the figures of the sparsemax derivation."""

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

import sharmix
from reporting.palette import look

MAPS = ("softmax", "sparsemax")
REACH = 3.0  # of the logits shown
POINTS = 301


def draw_maps() -> Figure:
    """Softmax and sparsemax: p₁ of the logits (t, 0), and of (t₁, t₂, 0) with the edges where a class gets no part."""
    figure = Figure(figsize=(13, 4.2), layout="constrained")
    line, *planes = figure.subplots(1, 3)
    t = torch.linspace(-REACH, REACH, POINTS, dtype=torch.float64)
    for name in MAPS:
        p = sharmix.build_activation(name)(torch.stack([t, torch.zeros_like(t)], -1))[:, 0]
        line.plot(t, p, color=look(name).colour, label=look(name).label)
    line.set(xlabel="t", ylabel="p₁ of the logits (t, 0)", title="two classes")
    line.legend(frameon=False)
    for name, axes in zip(MAPS, planes, strict=True):
        _draw_plane(axes, name, t)
    return figure


def draw_losses() -> Figure:
    """Losses of two classes by the margin m = z_y − z_other: sparsemax beside logistic, hinge and Huber."""
    figure = Figure(figsize=(6.4, 4.6), layout="constrained")
    axes = figure.subplots()
    margin = torch.linspace(-REACH, REACH, POINTS, dtype=torch.float64)
    for name, (values, style) in losses(margin).items():
        axes.plot(margin, values, label=name, **style)
    axes.set(xlabel="margin z_y − z_other", ylabel="loss", ylim=(-0.1, 4.1))
    axes.legend(frameon=False)
    return figure


def losses(margin: Tensor) -> dict[str, tuple[Tensor, dict[str, str]]]:
    """The losses shown, by name, each with how its line looks.

    Args:
        margin: m, [n].

    Source: Martins and Astudillo, From Softmax to Sparsemax, 2016, section 3.2; Huber's for classification is
    Zhang's, 2004: (1 − m)₊² for m ≥ −1, else −4m. Sparsemax's is a quarter of it.
    """
    logits = torch.stack([margin, torch.zeros_like(margin)], -1)
    targets = torch.zeros(len(margin), dtype=torch.long)
    own = {name: sharmix.build_activation(name).loss(logits, targets, reduction="none") for name in MAPS}
    huber = torch.where(margin >= -1, (1 - margin).clamp_min(0).square(), -4 * margin)
    return {
        "logistic (softmax)": (own["softmax"], {"color": look("softmax").colour}),
        "sparsemax": (own["sparsemax"], {"color": look("sparsemax").colour}),
        "hinge": ((1 - margin).clamp_min(0), {"color": "0.5", "linestyle": "--"}),
        "Huber (modified, for classes)": (huber, {"color": "0.5", "linestyle": ":"}),
    }


def _draw_plane(axes: Axes, name: str, t: Tensor) -> None:
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
