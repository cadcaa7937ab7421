"""Parts that several figures share: curves and trade-offs drawn into given axes, a legend, and the files."""

from collections.abc import Iterable
from io import BytesIO
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reporting.groups import Group

MARKERS = 10  # on a curve, however many epochs it has


def draw_trade_off(axes: Axes, groups: list[Group], epoch: int | None = None) -> None:
    """Test accuracy against sparsity: a pale point for each seed, the mean with bars of one standard deviation.

    Args:
        axes: where to draw.
        groups: the runs.
        epoch: the epoch to show; None for the one that each run reports.
    """
    for group in groups:
        x, y = (group.runs.values("test", metric, epoch) for metric in ("sparsity", "accuracy"))
        colour, marker = group.style["color"], group.style["marker"]
        axes.scatter(x, y, color=colour, marker=marker, s=18, alpha=0.35, linewidths=0)
        several = len(x) > 1  # one seed has no deviation
        axes.errorbar(
            x.mean(),
            y.mean(),
            xerr=x.std() if several else None,
            yerr=y.std() if several else None,
            capsize=3,
            markersize=9,
            label=group.label,
            **_outlined(group.style) | {"linestyle": "none"},
        )
    axes.set(xlabel="sparsity (share of exact zeros)", ylabel="test accuracy")


def draw_curves(axes: Axes, groups: list[Group], column: str) -> None:
    """Numbers by epoch: the mean over seeds as far as all seeds go, in a band from the lowest to the highest.

    Args:
        axes: where to draw.
        groups: the runs; those that did not measure the column are left out.
        column: name of the numbers in the records' curves, such as "test/accuracy".
    """
    for group in groups:
        curves = group.runs.by_epoch(column)
        if curves.empty:
            continue
        every = max(1, len(curves) // MARKERS)
        mean = curves.mean(axis="columns", skipna=False)  # ends with the shortest run
        axes.plot(curves.index, mean, label=group.label, markevery=every, **_outlined(group.style))
        lowest, highest = curves.min(axis="columns"), curves.max(axis="columns")
        axes.fill_between(curves.index, lowest, highest, color=group.style["color"], alpha=0.15, linewidth=0)
    axes.set_xlabel("epoch")
    axes.xaxis.get_major_locator().set_params(integer=True)


def draw_against(axes: Axes, groups: list[Group], x: str, y: str, scale: float = 1.0) -> None:
    """Numbers against other numbers: a line for each run, a point for each epoch.

    Args:
        axes: where to draw.
        groups: the runs; those that did not measure both are left out.
        x: name of the numbers on the horizontal axis in the records' curves.
        y: name of the numbers on the vertical axis.
        scale: what the values of x are multiplied by.
    """
    for group in groups:
        xs, ys = (group.runs.by_epoch(column) for column in (x, y))
        if xs.empty:
            continue
        for number, seed in enumerate(ys):
            label = group.label if number == 0 else None
            axes.plot(scale * xs[seed], ys[seed], label=label, markersize=4, **group.style)


def row_of_panels(count: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """A figure with panels in one row.

    Args:
        count: number of the panels.
        width: of a panel, in inches.
        height: of the figure, in inches.

    Returns:
        The figure, and the axes of its panels from left to right.
    """
    figure = Figure(figsize=(width * count, height), layout="constrained")
    return figure, list(figure.subplots(1, count, squeeze=False).flat)


def add_legend(figure: Figure, axes: Iterable[Axes], columns: int) -> None:
    """One legend below all panels, each label once."""
    shown: dict[str, Any] = {}
    for one in axes:
        for handle, text in zip(*one.get_legend_handles_labels(), strict=True):
            shown.setdefault(text, handle)
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=columns, frameon=False)


def rendered(figure: Figure, name: str) -> dict[str, bytes]:
    """The files of a figure: NAME.png, then NAME.svg.

    Text stays text in the SVG, and the same figure gives the same bytes.
    """
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "sharmix"}):
        vector = _written(figure, format="svg", metadata={"Date": None})
    return {f"{name}.png": _written(figure, format="png", dpi=150), f"{name}.svg": vector}


def _written(figure: Figure, **options: Any) -> bytes:
    file = BytesIO()
    figure.savefig(file, **options)
    return file.getvalue()


def _outlined(style: dict[str, Any]) -> dict[str, Any]:
    return {"markeredgecolor": "black", "markerfacecoloralt": "white", **style}
