"""Accuracy by epoch, as the difference to softmax: the curves themselves nearly coincide."""

from matplotlib.figure import Figure

from reporting.drawing import draw_curves, label_difference, label_lines, stack_of_panels
from reporting.figures import figure
from reporting.figures.accuracy_sparsity import beside_softmax
from reporting.kept_runs import KeptRuns

LOWEST = -6  # percentage points: differences of the first epochs are larger, and would flatten the rest


@figure("learning_curves")
def draw_learning_curves(kept: KeptRuns) -> Figure:
    """One panel for each experiment with softmax."""
    panels = beside_softmax(kept)
    result, axes = stack_of_panels(len(panels), 2.6)
    for (panel, softmax, others), one in zip(panels, axes, strict=True):
        draw_curves(one, others, "test/accuracy", softmax)
        label_difference(one)
        one.set_title(f"{panel.title_with_seeds()}: test accuracy minus softmax's")
        one.set_ylim(max(one.get_ylim()[0], LOWEST), None)
    label_lines(result, axes)
    return result
