"""Test accuracy by epoch."""

from matplotlib.figure import Figure

from reporting.drawing import add_legend, draw_curves, row_of_panels
from reporting.figures import figure
from reporting.kept_runs import KeptRuns


@figure("learning_curves")
def draw_learning_curves(kept: KeptRuns) -> Figure:
    """One panel for each experiment."""
    result, axes = row_of_panels(len(kept.panels), 4.4, 5.2)
    for panel, one in zip(kept.panels, axes, strict=True):
        draw_curves(one, panel.runs, "test/accuracy")
        one.set(title=panel.title_with_seeds(), ylabel="test accuracy")
    add_legend(result, axes, columns=3)
    return result
