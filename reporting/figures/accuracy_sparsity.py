"""Test accuracy against sparsity: how much accuracy a sparse activation costs."""

from matplotlib.figure import Figure

from reporting.drawing import add_legend, draw_trade_off, grid_of_panels
from reporting.figures import figure
from reporting.kept_runs import KeptRuns


@figure("accuracy_sparsity")
def draw_accuracy_sparsity(kept: KeptRuns) -> Figure:
    """One panel for each experiment, all runs of a panel at one epoch."""
    result, axes, place = grid_of_panels(len(kept.panels), 3.2)
    for panel, one in zip(kept.panels, axes, strict=True):
        draw_trade_off(one, panel.runs, panel.epoch)
        title = panel.title_with_seeds()
        one.set_title(title if panel.epoch is None else f"{title}, epoch {panel.epoch}")
    add_legend(result, axes, 2, place)
    return result
