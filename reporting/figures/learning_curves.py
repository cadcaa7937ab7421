"""Test accuracy by epoch."""

from matplotlib.figure import Figure

from reporting.drawing import draw_curves, label_lines, say_range, stack_of_panels
from reporting.figures import figure
from reporting.kept_runs import KeptRuns


@figure("learning_curves")
def draw_learning_curves(kept: KeptRuns) -> Figure:
    """One panel for each experiment."""
    result, axes = stack_of_panels(len(kept.panels), 2.5)
    for panel, one in zip(kept.panels, axes, strict=True):
        draw_curves(one, panel.runs, "test/accuracy")
        one.set_title(panel.title_with_seeds())
        say_range(one, "test accuracy")
    label_lines(result, axes)
    return result
