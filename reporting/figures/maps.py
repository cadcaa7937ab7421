"""SharMiX of two and of three classes under six pairs (q, r); computed without records."""

from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.tri import Triangulation

import sharmix
from reporting.figures import figure
from reporting.figures.drawing import WIDTH, headline, label_lines, stack_of_panels
from reporting.look.palette import look
from reporting.records.kept_runs import KeptRuns

# Softmax, 1.5-entmax and sparsemax, one pair of the paper, Gaussian entropy, and a pair whose entropy is not concave.
ORDERS: dict[tuple[float, float], tuple[str, dict[str, Any]]] = {
    (1.0, 1.0): ("softmax (1, 1)", {"color": look("softmax").colour}),
    (1.0, 2.0): ("Gaussian (1, 2)", {"color": "0.5", "linestyle": "--"}),
    (1.25, 1.5): ("SharMiX (1.25, 1.50)", {"color": look("sharmix_fixed").colour}),
    (1.5, 1.5): ("1.5-entmax (1.50, 1.50)", {"color": look("entmax").colour}),
    (2.0, 2.0): ("sparsemax (2, 2)", {"color": look("sparsemax").colour}),
    (1.75, 1.25): ("SharMiX (1.75, 1.25)", {"color": look("sharmix_fixed").colour, "linestyle": "-."}),
}
SIDE = 4.0  # the largest difference of two logits, in the corners
POINTS = 240  # along an edge
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 3**0.5 / 2]])  # of the three classes


@figure("maps")
def draw_maps(_: KeptRuns) -> Figure:
    """p₁ of the logits (t, 0) with the first t at which it is 1, and its derivative."""
    result, (line, slope) = stack_of_panels(2, 2.2)
    t = torch.linspace(0, 4.5, 901, dtype=torch.float64)
    for (q, r), (name, style) in ORDERS.items():
        if (q, r) == (1.0, 2.0):
            continue  # dense as softmax is
        z = t.clone().requires_grad_()
        p = sharmix.sharmix(torch.stack([z, torch.zeros_like(z)], -1), q=q, r=r)[..., 0]
        (derivative,) = torch.autograd.grad(p.sum(), z)
        ends = (p == 1).nonzero()[:1, 0].tolist()
        line.plot(t, p.detach(), label=name, marker="o", markevery=ends, **style)
        slope.plot(t, derivative, label=name, **style)
    line.set(title="Sparse maps reach exactly 1 at a finite t (dots)", ylabel="p₁ of (t, 0)")
    slope.set(title="Only SharMiX (1.75, 1.25) gets steeper with t", ylabel="∂p₁/∂t", xlabel="t, difference of logits")
    label_lines(result, [line])
    label_lines(result, [slope], at_start=True)
    return result


@figure("ternary")
def draw_ternary(_: KeptRuns) -> Figure:
    """A triangle for each pair: p₁ by colour, with the borders where a class has probability 0."""
    result = Figure(figsize=(WIDTH, 5.4), layout="constrained")
    axes = result.subplots(2, 3)
    shares = _grid()
    triangles = Triangulation(*(shares @ CORNERS).T)
    for one, ((q, r), (name, _style)) in zip(axes.flat, ORDERS.items(), strict=True):
        p = sharmix.sharmix(SIDE * torch.from_numpy(shares), q=q, r=r).numpy()
        filled = one.tricontourf(triangles, p[:, 0].clip(0, 1 - 1e-9), levels=np.linspace(0, 1, 11), cmap="cividis")
        filled.set_rasterized(True)  # stored as pixels, because thousands of shapes would make a large file
        support = (p > 0).sum(-1)
        if support.min() < support.max():
            borders = {"colors": "white", "linewidths": 1, "linestyles": ["-", "--"]}
            one.tricontour(triangles, support, levels=[1.5, 2.5], **borders)
        _name_corners(one)
        one.set_title(name, loc="center")
    result.colorbar(filled, ax=axes, label="p₁", shrink=0.6)
    headline(
        result,
        f"Three classes, computed. In a corner, one logit is {SIDE:g} above the others.\n"
        "White lines: one class is left beyond the solid one, all three within the dashed one.",
    )
    return result


def _grid() -> np.ndarray:
    """Points of the triangle as shares of its corners, [n, 3]."""
    first, second = np.meshgrid(np.arange(POINTS + 1), np.arange(POINTS + 1), indexing="ij")
    inside = first + second <= POINTS
    return np.stack([first[inside], second[inside], POINTS - first[inside] - second[inside]], -1) / POINTS


def _name_corners(axes: Axes) -> None:
    axes.fill(*CORNERS.T, facecolor="none", edgecolor="black", linewidth=0.8)
    for number, ((x, y), place) in enumerate(zip(CORNERS, ("top", "top", "bottom"), strict=True), 1):
        axes.text(x, y + (0.03 if place == "bottom" else -0.03), f"z{'₁₂₃'[number - 1]}", ha="center", va=place)
    axes.set(aspect="equal", xlim=(-0.05, 1.05), ylim=(-0.13, 1.0))
    axes.set_axis_off()
