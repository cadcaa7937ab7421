"""Figure 2: sparsity and r by epoch, on balanced and on long-tailed classes, beside the paper's levels."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reporting.drawing import draw_curves, label_lines, stack_of_panels
from reporting.figures import figure
from reporting.groups import Group
from reporting.kept_runs import KeptRuns, LeftOut

BAND = {"facecolor": "0.85", "edgecolor": "0.6", "hatch": "...", "linewidth": 0, "zorder": 0}


@figure("figure2")
def draw_figure2(kept: KeptRuns) -> Figure:
    """Two panels for each experiment with a regime; the levels are the paper's levels for ImageNet."""
    panels = [panel for panel in kept.panels if panel.levels is not None]
    if not panels:
        raise LeftOut("no panel with a regime has records")
    result, axes = stack_of_panels(2 * len(panels), 2.2)
    for panel, sparsity, order in zip(panels, axes[::2], axes[1::2], strict=True):
        draw_curves(sparsity, panel.runs, "test/sparsity")
        draw_curves(order, panel.runs, "r")
        _draw_fixed(order, panel.runs)
        _draw_published(sparsity, panel.levels or {})
        sparsity.set(
            title=f"{panel.title_with_seeds()}: sparsity",
            ylim=(-0.25, 1.08),  # room below 0 for the words on the grey band
            yticks=(0, 0.25, 0.5, 0.75, 1),
            ylabel="sparsity on test\n(share of exact zeros)",
        )
        order.set(title=f"{panel.title_with_seeds()}: r", ylim=(1, 2.05), ylabel="r")
    label_lines(result, axes)
    return result


def _draw_fixed(axes: Axes, groups: list[Group]) -> None:
    for group in groups:
        if (r := group.runs.activation.get("r")) is not None and group.runs.by_epoch("r").empty:
            ends = axes.get_xlim()
            axes.plot(ends, (r, r), color=group.style["color"], linestyle=group.style["linestyle"], label=group.label)
            axes.set_xlim(ends)


def _draw_published(axes: Axes, levels: dict[str, Any]) -> None:
    if "sparsity_low" in levels:
        low, high = levels["sparsity_low"], levels["sparsity_high"]
        axes.axhspan(low, high, **BAND)
        said = f"{low} to {high}"
    else:
        first, last = levels["zero_from_epoch"]
        level = levels["sparsity_final"]
        end = max(axes.get_xlim()[1], last)
        axes.fill_between([first, end], level - 0.02, level + 0.02, **BAND)  # wide enough to be seen
        said = f"{level} from epoch {first} or {last}"
    axes.text(axes.get_xlim()[0], -0.05, f" published (grey), ImageNet: {said}", va="top")
