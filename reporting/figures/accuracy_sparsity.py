"""Test accuracy against sparsity: how much accuracy a sparse activation costs."""

from matplotlib.figure import Figure

from reporting.drawing import add_legend, draw_trade_off, grid_of_panels
from reporting.figures import figure
from reporting.kept_runs import KeptRuns, LeftOut


@figure("accuracy_sparsity")
def draw_accuracy_sparsity(kept: KeptRuns) -> Figure:
    """One panel for each experiment with softmax, which is what a sparse activation is compared with, at one epoch."""
    panels = [panel for panel in kept.panels if any(run.runs.activation["name"] == "softmax" for run in panel.runs)]
    if not panels:
        raise LeftOut("no experiment has runs of softmax, with which the others are compared")
    result, axes, place = grid_of_panels(len(panels), 3.2)
    for panel, one in zip(panels, axes, strict=True):
        draw_trade_off(one, panel.runs, panel.epoch)
        title = panel.title_with_seeds()
        one.set_title(title if panel.epoch is None else f"{title}, epoch {panel.epoch}")
    add_legend(result, axes, 2, place)
    return result
