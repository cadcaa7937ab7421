"""The figures of the maps' times: over classes, and over rows."""

from collections.abc import Iterable
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from benchmarks.contenders import FIXED, LEARNED
from reporting.figures.drawing import label_lines, save_figure, stack_of_panels, style
from reporting.look.palette import look

_FLOORS = {"map": "relu", "loss": "sum"}  # the least that a map and a loss can take
# A contender has the colour and the marker that its activation has in the palette; markers of the entmax package are
# empty. The floor in Python is left out, for it is a constant above the other floor.
_STYLES = {
    "softmax": ("softmax", "-", "full"),
    "cross-entropy": ("softmax", "-", "full"),
    FIXED: ("sharmix_fixed", "-", "full"),
    "SharMiX (1.3, 1.5)": ("sharmix_fixed", "--", "left"),
    "SharMiX (1.75, 1.25)": ("sharmix_fixed", "-.", "right"),
    LEARNED: ("sharmix_learned", "-", "full"),
    "1.5-entmax": ("entmax", "-", "full"),
    "sparsemax": ("sparsemax", "-", "full"),
    "entmax15 (package)": ("entmax", "--", "none"),
    "sparsemax (package)": ("sparsemax", "--", "none"),
    "entmax15 (package), full sort": ("entmax", "-.", "none"),
    "entmax_bisect (package)": ("entmax", ":", "none"),
    "sparsemax_bisect (package)": ("sparsemax", ":", "none"),
}


def write_figures(path: Path, parts: Iterable[str]) -> None:
    """Write a figure of each part of the CSV file beside it, as SVG and PDF."""
    data = pd.read_csv(path)
    for part in parts:
        save_figure(draw(data[data["part"] == part], part), path.parent, f"{path.stem}_{part}")


@style()
def draw(curve: pd.DataFrame, part: str) -> Figure:
    """Time over classes or rows, a panel for each kind and regime.

    Args:
        curve: rows of the CSV.
        part: `classes` or `rows`, the horizontal axis.
    """
    cases = [(kind, regime) for kind in _FLOORS for regime in dict.fromkeys(curve["regime"])]
    figure, panels = stack_of_panels(len(cases), 2.6, sharex=True, sharey=True)
    bottom, top = 1e-6 * curve["lowest_microseconds"].min() / 1.5, 1e-6 * curve["highest_microseconds"].max() * 1.5
    other = "rows" if part == "classes" else "classes"
    for axes, (kind, regime) in zip(panels, cases, strict=True):
        shown = curve[(curve["kind"] == kind) & (curve["regime"] == regime)]
        _draw_panel(axes, shown, part, bottom)
        axes.set_title(f"{kind}, {regime} logits, {shown[other].iloc[0]:,} {other}; grey: {_FLOORS[kind]}")
        axes.set_ylabel("forward and backward")
    panels[0].set_ylim(bottom, top)  # the panels share this axis
    panels[-1].set_xlabel(part)
    label_lines(figure, panels)
    return figure


def _draw_panel(axes: Axes, shown: pd.DataFrame, part: str, bottom: float) -> None:
    axes.set(xscale="log", yscale="log")
    for name, group in shown.groupby("contender", sort=False):
        median, lowest, highest = (1e-6 * group[f"{place}_microseconds"] for place in ("median", "lowest", "highest"))
        if name in _STYLES:
            activation, line, fill = _STYLES[name]
            colour, marker = look(activation).colour, look(activation).marker
            axes.plot(
                group[part], median, color=colour, linestyle=line, linewidth=1.2, label=name,
                marker=marker, markersize=4, fillstyle=fill, markerfacecoloralt="white",
            )  # fmt: skip
            axes.fill_between(group[part], lowest, highest, color=colour, alpha=0.15, linewidth=0)
        elif name in _FLOORS.values():
            axes.fill_between(group[part], bottom, median, color="0.92", linewidth=0)
            _draw_slope(axes, group[part].max(), median.iloc[-1] / 6, part)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.yaxis.set_major_formatter(EngFormatter("s"))


def _draw_slope(axes: Axes, end: float, time: float, part: str) -> None:
    """A line that linear growth is parallel to, ending at a time."""
    axes.plot([end / 30, end], [time / 30, time], color="0.55", linewidth=1)
    middle = (end / 30**0.5, time / 30**0.5)
    axes.annotate(f"∝ {part}", middle, (6, -8), textcoords="offset points", color="0.4", fontsize=9, va="center")
