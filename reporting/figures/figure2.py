"""Figure 2: sparsity and r by epoch, on balanced and on long-tailed classes, beside what the paper shows."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reporting.drawing import add_legend, draw_curves
from reporting.figures import figure
from reporting.groups import Group
from reporting.kept_runs import KeptRuns, LeftOut

BAND = {"facecolor": "0.85", "edgecolor": "0.6", "hatch": "...", "linewidth": 0, "zorder": 0}


@figure("figure2")
def draw_figure2(kept: KeptRuns) -> Figure:
    """One column for each panel with a regime; the levels are those that the paper shows for ImageNet."""
    panels = [panel for panel in kept.panels if panel.levels is not None]
    if not panels:
        raise LeftOut("no panel with a regime has records")
    result = Figure(figsize=(5.2 * len(panels), 7.4), layout="constrained")
    axes = result.subplots(2, len(panels), squeeze=False, sharex="col", sharey="row")
    for panel, (above, below) in zip(panels, axes.T, strict=True):
        draw_curves(above, panel.runs, "test/sparsity")
        draw_curves(below, panel.runs, "r")
        _draw_fixed(below, panel.runs)
        _draw_published(above, panel.levels or {})
        above.set(title=panel.title_with_seeds(), xlabel="", ylim=(-0.1, 1.05))
    axes[0, 0].set_ylabel("sparsity on test (share of exact zeros)")
    axes[1, 0].set_ylabel("r")
    add_legend(result, axes.flat, columns=3)
    return result


def _draw_fixed(axes: Axes, groups: list[Group]) -> None:
    for group in groups:
        if (r := group.runs.activation.get("r")) is not None and group.runs.by_epoch("r").empty:
            axes.axhline(r, color=group.style["color"], linestyle=group.style["linestyle"], linewidth=1)


def _draw_published(axes: Axes, levels: dict[str, Any]) -> None:
    if "sparsity_low" in levels:
        low, high = levels["sparsity_low"], levels["sparsity_high"]
        axes.axhspan(low, high, **BAND)
        axes.text(axes.get_xlim()[0], high + 0.01, f" published, ImageNet: {low} to {high}", va="bottom", fontsize=8)
    else:
        first, last = levels["zero_from_epoch"]
        level = levels["sparsity_final"]
        low, high = level - 0.02, level + 0.02  # wide enough to be seen
        end = max(axes.get_xlim()[1], last)
        axes.fill_between([first, end], low, high, **BAND)
        axes.text(first, low - 0.01, f"published, ImageNet: {level} from epoch {first} or {last}", va="top", fontsize=8)
