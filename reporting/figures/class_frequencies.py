"""Learned orders on CIFAR-100 with three class frequencies, under three objectives."""

from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from reporting.figures import figure
from reporting.figures.drawing import WIDTH, add_legend, draw_against
from reporting.look.palette import OBJECTIVES, TRAINING_SETS
from reporting.records.kept_runs import KeptRuns

TABLES = {
    "balanced": "cifar100_orders",
    "control": "cifar100_subset_orders",
    "long-tailed": "cifar100_lt_orders",
}
COLUMNS = {"sparsity on test": "test/sparsity", "accuracy on train": "train/accuracy", "q": "q", "r": "r"}


@figure("class_frequencies")
def draw_class_frequencies(kept: KeptRuns) -> Figure:
    """A row of panels for each objective. The control, a balanced subset, has as many images as the long-tailed set."""
    result = Figure(figsize=(WIDTH, 5.6), layout="constrained")
    panels = result.subplots(len(OBJECTIVES), len(COLUMNS), sharex=True, sharey="col", squeeze=False)
    for row, (objective, (title, _)) in zip(panels, OBJECTIVES.items(), strict=True):
        row[0].set_title(title)
        runs = [
            group._replace(label=name, style=TRAINING_SETS[name])
            for name, table in TABLES.items()
            for group in kept.of_table(table)
            if group.runs.activation["objective"] == objective
        ]
        for axes, (name, column) in zip(row, COLUMNS.items(), strict=True):
            axes.set(xscale="log", ylabel=name)
            axes.xaxis.set_minor_formatter(NullFormatter())  # numbers at powers of 10 only
            draw_against(axes, runs, "steps", column)
    for axes in panels[-1]:
        axes.set_xlabel("training steps")
    add_legend(result, panels.flat, len(TABLES))
    return result
