"""Code that figures share: style, panels, curves and intervals in given axes, labels, and the figure's files."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from pandas.api.typing import SeriesGroupBy
from scipy.optimize import isotonic_regression

from experiments.files import replace_atomically
from reporting.look.palette import Look
from reporting.look.themed_svg import themed
from reporting.records.groups import Group
from reporting.records.runs import Runs
from reporting.records.statistics import POINTS

MARKERS = 10  # markers on a curve, for any number of epochs
WIDTH = 7.0  # width of a figure, in inches: in a column of 345 pt, text of 9 points is still 6 points high
LABEL_HEIGHT = 11  # points from one label to the next
FILLED = "Filled: the interval over seeds does not contain 0."
_PIXELS = 200  # an inch, for what is drawn as pixels
_STYLE = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "0.9",
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 5,
    "svg.fonttype": "none",
    "svg.hashsalt": "sharmix",
    "pdf.fonttype": 42,
}


@contextmanager
def style() -> Iterator[None]:
    """The style of all figures, as a context or as a decorator of a function that draws."""
    with matplotlib.rc_context(_STYLE):
        yield


def draw_interval(axes: Axes, row: int, ends: tuple[float, float, float], look: Look) -> bool:
    """An interval in a row of a panel: low end, mean, high end; the mean alone is small where there are no ends.

    Returns whether the interval does not contain 0: then the mean is filled, and so is one that is alone.
    """
    low, mean, high = ends
    alone = np.isnan(low)
    differs = low > 0 or high < 0
    axes.plot([low, high], [row, row], color=look.colour)
    ground, size = look.colour if differs or alone else "white", 3 if alone else 6.5
    axes.plot(mean, row, color=look.colour, marker=look.marker, markerfacecolor=ground, markersize=size)
    return differs


def name_rows(axes: Axes, names: list[str]) -> None:
    """Name the rows of a panel of differences, the first on top, and draw the line of softmax."""
    axes.axvline(0, color="black", linewidth=1, zorder=1)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)


def draw_curves(axes: Axes, groups: list[Group], column: str, baseline: Runs | None = None) -> None:
    """Numbers by epoch: the mean over seeds up to the end of the shortest run, in a band from lowest to highest.

    With a baseline, its number with the same seed is subtracted, in percentage points.
    """
    for group in groups:
        curves = group.runs.by_epoch(column)
        if baseline is not None:
            curves = (POINTS * (curves - baseline.by_epoch(column))).dropna(axis="columns", how="all")
        if curves.empty:
            continue
        every = max(1, len(curves) // MARKERS)
        mean = curves.mean(axis="columns", skipna=False)  # ends with the shortest run
        axes.plot(curves.index, mean, label=group.label, markevery=every, **_outlined(group.style))
        lowest, highest = curves.min(axis="columns"), curves.max(axis="columns")
        axes.fill_between(curves.index, lowest, highest, color=group.style["color"], alpha=0.15, linewidth=0)
    if baseline is not None:
        _label_difference(axes)
    axes.set_xlabel("epoch")
    axes.xaxis.get_major_locator().set_params(integer=True)


def draw_against(axes: Axes, groups: list[Group], x: str, y: str) -> None:
    """Columns `y` of the curves against columns `x`: a line for each run, a point for each epoch."""
    for group in groups:
        xs, ys = (group.runs.by_epoch(column) for column in (x, y))
        if xs.empty:
            continue
        for place, seed in enumerate(ys):
            label = group.label if place == 0 else None
            axes.plot(xs[seed], ys[seed], label=label, **_outlined(group.style) | {"markersize": 4})


def draw_means(axes: Axes, values: SeriesGroupBy, label: str, colour: str, **line: Any) -> None:
    """Means of a study's values over seeds as a line, in a band from the lowest to the highest."""
    lowest, mean, highest = values.min(), values.mean(), values.max()
    axes.plot(mean.index, mean, label=label, color=colour, **line)
    axes.fill_between(mean.index, lowest, highest, color=colour, alpha=0.12, linewidth=0)


def _label_difference(axes: Axes) -> None:
    """Name the vertical axis of a difference to softmax, and draw the line of softmax."""
    axes.axhline(0, color="black", linewidth=1.4, zorder=1)
    axes.set_ylabel("accuracy minus softmax's,\npercentage points")


def label_share(axes: Axes, name: str) -> None:
    """Name the vertical axis of a share, which ends at 0 and 1."""
    low, high = axes.get_ylim()
    axes.set(ylim=(max(low, 0), min(high, 1)), ylabel=name)


def grid_of_panels(count: int, height: float) -> tuple[Figure, list[Axes], Axes | None]:
    """A figure with panels in rows of two, each row `height` inches high.

    Returns:
        The figure, the axes of its panels, and for an odd count the free place, for a legend.
    """
    rows = -(-count // 2)
    figure = Figure(figsize=(WIDTH, height * rows), layout="constrained")
    places = list(figure.subplots(rows, 2, squeeze=False).flat)
    for left in places[count:]:
        left.set_axis_off()
    return figure, places[:count], places[count] if count % 2 else None


def stack_of_panels(count: int, height: float, **shared: Any) -> tuple[Figure, list[Axes]]:
    """A figure with panels below each other, each `height` inches high, with room for labels."""
    figure = Figure(figsize=(WIDTH, height * count), layout="constrained")
    return figure, list(figure.subplots(count, 1, squeeze=False, **shared).flat)


def headline(figure: Figure, text: str) -> None:
    """Say above all panels what a figure shows."""
    figure.suptitle(text, x=0.01, ha="left", fontsize="medium")


def add_legend(figure: Figure, axes: Iterable[Axes], columns: int, place: Axes | None = None) -> None:
    """One legend for all panels, each label once: in the free place, or below the panels."""
    shown: dict[str, Any] = {}
    for one in axes:
        for handle, text in zip(*one.get_legend_handles_labels(), strict=True):
            shown.setdefault(text, handle)
    if place is not None:
        place.legend(shown.values(), shown.keys(), loc="center")
    else:
        figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=columns)


def label_lines(figure: Figure, axes: Iterable[Axes], at_start: bool = False) -> None:
    """Write the label of each line beside its panel, joined to the end of the line; call it last.

    Labels that would overlap are moved apart, as little as possible. With `at_start`, they stand on the left, at the
    start of their lines, and the vertical axis moves to the right. A line with no point in its panel has no label.
    """
    labelled = [(one, [line for line in one.lines if not line.get_label().startswith("_")]) for one in axes]
    labelled = [(one, [line for line in lines if len(_shown(one, line))]) for one, lines in labelled]
    texts = {line: _label(one, line, at_start) for one, lines in labelled for line in lines}
    for one, _ in labelled if at_start else ():
        one.yaxis.tick_right()
        one.yaxis.set_label_position("right")
    figure.draw_without_rendering()  # the heights of the panels are known now
    for one, lines in labelled:
        to_axes = one.transData + one.transAxes.inverted()
        heights = {line: to_axes.transform(_end(one, line, at_start))[1] for line in lines}
        gap = LABEL_HEIGHT / (one.bbox.height / figure.dpi * 72)
        # Rounded, because rounding errors must not decide the order of lines that end at the same height.
        lowest_first = sorted(heights, key=lambda line: round(heights[line], 6))
        for line, y in zip(lowest_first, _apart([heights[line] for line in lowest_first], gap), strict=True):
            texts[line].set_y(y)


def _label(axes: Axes, line: Line2D, at_start: bool) -> Text:
    look = {"color": line.get_color(), "linestyle": line.get_linestyle(), "linewidth": 0.8}
    return axes.annotate(
        line.get_label(),
        _end(axes, line, at_start),
        xytext=(-0.06 if at_start else 1.06, 0.5),
        textcoords="axes fraction",
        ha="right" if at_start else "left",
        va="center",
        annotation_clip=False,
        arrowprops=look | {"arrowstyle": "-", "shrinkA": 1, "shrinkB": 2, "relpos": (float(at_start), 0.5)},
    )


def _end(axes: Axes, line: Line2D, at_start: bool) -> np.ndarray:
    """The last point (or the first point) of a line inside its panel."""
    return _shown(axes, line)[0 if at_start else -1]


def _shown(axes: Axes, line: Line2D) -> np.ndarray:
    """The points of a line inside its panel, [n, 2]."""
    points = np.asarray(line.get_xydata(), dtype=float)
    low, high = axes.get_ylim()
    return points[(points[:, 1] >= low) & (points[:, 1] <= high)]  # NaN is not inside


def _apart(heights: list[float], gap: float) -> np.ndarray:
    """The nearest heights in the same order with at least `gap` between them, if they fit between 0 and 1."""
    steps = gap * np.arange(len(heights))
    room = max(0.0, 1 - gap * (len(heights) - 1))
    return np.clip(isotonic_regression(np.asarray(heights) - steps).x, 0, room) + steps


def save_figure(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write the files of a figure, NAME.svg for pages and NAME.pdf for papers. Returns their paths.

    Text stays text in the SVG, which follows the theme of its page. The same figure gives the same bytes.
    """
    svg, pdf = BytesIO(), BytesIO()
    with style():
        figure.set_dpi(_PIXELS)
        figure.draw_without_rendering()  # the layout takes two passes to settle; each file is one
        figure.savefig(svg, format="svg", dpi=_PIXELS, transparent=True, metadata={"Date": None})
        figure.savefig(pdf, format="pdf", dpi=_PIXELS, metadata={"CreationDate": None})
    contents = {f"{name}.svg": themed(svg.getvalue().decode()).encode(), f"{name}.pdf": pdf.getvalue()}
    for file, content in contents.items():
        replace_atomically(folder / file, lambda opened, content=content: opened.write(content))
    return [folder / file for file in contents]


def _outlined(style: dict[str, Any]) -> dict[str, Any]:
    return {"markeredgecolor": "black", "markeredgewidth": 0.6, "markerfacecoloralt": "white", **style}
