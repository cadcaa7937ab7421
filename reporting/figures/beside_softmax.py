"""The activations beside softmax with the same seed: accuracy against sparsity, and accuracy by epoch."""

from matplotlib.figure import Figure

from reporting.figures import figure
from reporting.figures.drawing import (
    add_legend,
    draw_curves,
    draw_trade_off,
    grid_of_panels,
    label_lines,
    stack_of_panels,
)
from reporting.records.groups import Group
from reporting.records.kept_runs import KeptRuns, LeftOut, ShownPanel
from reporting.records.runs import Runs

LOWEST = -8  # percentage points: with the larger differences of the first epochs, the other curves would look flat


@figure("accuracy_sparsity")
def draw_accuracy_sparsity(kept: KeptRuns) -> Figure:
    """One panel for each experiment with softmax, at one epoch: the difference to softmax with the same seed."""
    panels = beside_softmax(kept)
    result, axes, place = grid_of_panels(len(panels), 3.2)
    for (panel, softmax, others), one in zip(panels, axes, strict=True):
        draw_trade_off(one, others, softmax, panel.epoch)
        title = panel.title_with_seeds()
        one.set_title(title if panel.epoch is None else f"{title},\nepoch {panel.epoch}")
    add_legend(result, axes, 2, place)
    return result


@figure("learning_curves")
def draw_learning_curves(kept: KeptRuns) -> Figure:
    """One panel for each experiment with softmax."""
    panels = beside_softmax(kept)
    result, axes = stack_of_panels(len(panels), 2.6)
    for (panel, softmax, others), one in zip(panels, axes, strict=True):
        draw_curves(one, others, "test/accuracy", softmax)
        one.set_title(f"{panel.title_with_seeds()}: test accuracy minus softmax's")
        one.set_ylim(max(one.get_ylim()[0], LOWEST), None)
    label_lines(result, axes)
    return result


def beside_softmax(kept: KeptRuns) -> list[tuple[ShownPanel, Runs, list[Group]]]:
    """Each panel that has runs of softmax, with these runs and the groups of the other activations."""
    found = []
    for panel in kept.panels:
        softmax = [group for group in panel.runs if group.runs.activation["name"] == "softmax"]
        if softmax:
            found.append((panel, softmax[0].runs, [group for group in panel.runs if group is not softmax[0]]))
    if not found:
        raise LeftOut("no experiment has runs of softmax to compare the others with")
    return found
