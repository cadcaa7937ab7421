"""Figure 1: the plane of the orders (q, r), with the path that each learned run took."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reporting.figures import figure
from reporting.figures.drawing import add_legend, grid_of_panels
from reporting.look.palette import OBJECTIVES, look, look_of
from reporting.records.groups import Group
from reporting.records.kept_runs import KeptRuns, count_seeds

LOW, HIGH = 0.93, 2.07
GREY = "0.35"


@figure("figure1")
def draw_figure1(kept: KeptRuns) -> Figure:
    """One panel for each experiment."""
    result, axes, place = grid_of_panels(len(kept.panels), 3.6)
    for panel, one in zip(kept.panels, axes, strict=True):
        draw_plane(one)
        draw_paths(one, panel.paths)
        one.set_title(f"{panel.title}, {count_seeds(panel.paths)}")
    add_legend(result, axes, 2, place)
    return result


def draw_plane(axes: Axes) -> None:
    """Draw the special cases of Sharma–Mittal entropy, and where it is not concave.

    Tsallis' entropy lies on r = q, Rényi's on r = 1, the Gaussian one on q = 1 and Shannon's at (1, 1), where the map
    is softmax; at (2, 2) it is sparsemax. The entropy is not concave for r < 2 − 1/q, q > 1, which is shaded. α-normmax
    has its orders on that border and the temperature q − 1. The plane is drawn for temperature 1, which α-normmax has
    only at (2, 1.5): a pin marks this point, and the legend names the line.
    """
    q = np.linspace(1, HIGH, 101)
    boundary = 2 - 1 / q
    axes.fill_between(q, LOW, boundary, facecolor="0.94", edgecolor="0.8", hatch="///", linewidth=0)
    border = f"(q, r) of {look('normmax').label},\nwhose temperature is q − 1, not 1"
    axes.plot(q, boundary, color=look("normmax").colour, linewidth=1.5, linestyle="--", label=border)
    axes.plot([LOW, HIGH], [LOW, HIGH], color=GREY, linewidth=1)
    axes.axhline(1, color=GREY, linewidth=1, linestyle="-.")
    axes.axvline(1, color=GREY, linewidth=1, linestyle=":")
    for name, place in {"softmax": (1.0, 1.0), "sparsemax": (2.0, 2.0), "normmax": (2.0, 1.5)}.items():
        axes.plot(*place, color=look(name).colour, marker=look(name).marker, markeredgecolor="black", markersize=8)
    _name(axes, 1.03, 0.945, "Shannon (1, 1): softmax", ha="left")
    _name(axes, 1.95, 2.015, "sparsemax (2, 2)", ha="right")
    _name(axes, 1.045, 1.065, "Tsallis: α-entmax", ha="left", rotation=45)
    _name(axes, 2.05, 1.005, "Rényi", ha="right")
    _name(axes, 0.995, 1.65, "Gaussian", ha="right", rotation=90)
    _name(axes, 2.055, 1.535, "2-normmax", ha="right")
    _name(axes, 1.45, 1.08, "not concave: r < 2 − 1/q", ha="left")
    axes.set(xlim=(LOW, HIGH), ylim=(LOW, HIGH), xlabel="q", ylabel="r", aspect="equal")


def draw_paths(axes: Axes, groups: list[Group]) -> None:
    """Draw the path of each learned run: a ring where it starts, the activation's marker where it ends.

    The line style shows the objective by which the orders were learned.
    """
    for group in groups:
        activation = group.runs.activation
        name = activation.get("objective") or "fenchel_young"
        objective, line = OBJECTIVES.get(name, (name, (0, (3, 1, 1, 1, 1, 1))))
        own = look_of(activation)
        for path in (path for path in group.runs.paths() if len(path) > 1):  # fixed orders have no path to draw
            axes.plot(path["q"], path["r"], color=own.colour, linestyle=line, label=f"{own.label}: {objective}")
            axes.plot(*path.iloc[0], color=own.colour, marker="o", markersize=6, fillstyle="none", linestyle="none")
            axes.plot(*path.iloc[-1], color=own.colour, marker=own.marker, markeredgecolor="black", linestyle="none")


def _name(axes: Axes, q: float, r: float, text: str, ha: str, rotation: float = 0) -> None:
    axes.text(q, r, text, ha=ha, va="bottom", rotation=rotation, rotation_mode="anchor", fontsize=9, color="0.2")
