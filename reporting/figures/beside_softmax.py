"""The activations beside softmax with the same seed: accuracy and sparsity, and accuracy by epoch."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from reporting.figures import figure
from reporting.figures.drawing import (
    FILLED,
    WIDTH,
    draw_curves,
    draw_interval,
    headline,
    label_lines,
    name_rows,
    stack_of_panels,
)
from reporting.look.palette import look_of
from reporting.records.groups import Group
from reporting.records.kept_runs import KeptRuns, LeftOut, ShownPanel
from reporting.records.runs import Runs
from reporting.records.statistics import POINTS, estimate, paired_difference


@figure("accuracy_sparsity")
def draw_accuracy_sparsity(kept: KeptRuns) -> Figure:
    """For each experiment, at one epoch: accuracy minus softmax's beside sparsity, which orders the activations."""
    panels = beside_softmax(kept)
    rows = [len(others) for _, _, others in panels]
    result = Figure(figsize=(WIDTH, 0.2 * sum(rows) + 0.65 * len(rows) + 0.6), layout="constrained")
    sizes = {"height_ratios": rows, "width_ratios": (3, 2)}
    axes = result.subplots(len(rows), 2, squeeze=False, sharey="row", gridspec_kw=sizes)
    for (panel, softmax, others), pair in zip(panels, axes, strict=True):
        measured = [(group, _beside(group, softmax, panel.epoch)) for group in others]
        measured.sort(key=lambda one: one[1][1].mean())
        for row, (group, both) in enumerate(measured):
            for one, values in zip(pair, both, strict=True):
                found = estimate(values, kept.declaration.confidence)
                draw_interval(one, row, (found.low, found.mean, found.high), look_of(group.runs.activation))
        name_rows(pair[0], [group.label for group, _ in measured])
        title = panel.title_with_seeds()
        pair[0].set_title(title if panel.epoch is None else f"{title}, epoch {panel.epoch}")
        pair[1].set_xlim(-0.03, 1.03)
        pair[1].tick_params(axis="y", length=0)
    axes[-1, 0].set_xlabel("accuracy minus softmax's, percentage points")
    axes[-1, 1].set_xlabel("sparsity (share of exact zeros)")
    headline(result, "Test accuracy minus softmax's beside sparsity, in each panel from the densest to the sparsest")
    result.supxlabel(f"{FILLED} Small: one seed, so no interval. Scales differ.", fontsize="medium")
    return result


@figure("learning_curves")
def draw_learning_curves(kept: KeptRuns) -> Figure:
    """One panel for each experiment with softmax, and in it the activations that all of them have."""
    panels = beside_softmax(kept)
    common = set.intersection(*({group.label for group in others} for _, _, others in panels))
    result, axes = stack_of_panels(len(panels), 2)
    for (panel, softmax, others), one in zip(panels, axes, strict=True):
        draw_curves(one, [group for group in others if group.label in common], "test/accuracy", softmax)
        one.set_title(panel.title_with_seeds())
    lines = [line for one in axes for line in one.lines if not line.get_label().startswith("_")]
    curves = [np.asarray(line.get_ydata(), dtype=float) for line in lines]
    nearer = sum(abs(curve[np.isfinite(curve)][-1]) < abs(curve[0]) for curve in curves)
    headline(
        result, f"{nearer} of {len(curves)} curves end nearer to softmax's test accuracy than they were after epoch 1"
    )
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


def _beside(group: Group, softmax: Runs, epoch: int | None) -> tuple[pd.Series, pd.Series]:
    """Test accuracy minus softmax's with the same seed, in percentage points, and sparsity, by seed."""
    sparsity, accuracy = (group.runs.values("test", metric, epoch) for metric in ("sparsity", "accuracy"))
    difference = POINTS * paired_difference(accuracy, softmax.values("test", "accuracy", epoch))
    return difference, sparsity[difference.index]
