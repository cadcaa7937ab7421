"""Class frequencies against steps: sparsity, fit and learned (q, r) on three training sets, under each objective."""

from collections.abc import Mapping

from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from reporting.drawing import WIDTH, add_legend, draw_against
from reporting.figures import figure
from reporting.groups import Group
from reporting.kept_runs import KeptRuns
from reporting.palette import OBJECTIVES, TRAINING_SETS

TABLES = {
    "balanced": "cifar100_orders",
    "control": "cifar100_subset_orders",
    "long-tailed": "cifar100_lt_orders",
}
COLUMNS = {"sparsity on test": "test/sparsity", "accuracy on train": "train/accuracy", "q": "q", "r": "r"}


@figure("class_frequencies")
def draw_class_frequencies(kept: KeptRuns) -> Figure:
    """A row of panels for each objective. The control, a balanced subset, has as many images as the long-tailed set."""
    groups = {name: kept.of_table(table) for name, table in TABLES.items()}
    result = Figure(figsize=(WIDTH, 5.6), layout="constrained")
    panels = result.subplots(len(OBJECTIVES), len(COLUMNS), sharex=True, sharey="col", squeeze=False)
    for row, (objective, (title, _)) in zip(panels, OBJECTIVES.items(), strict=True):
        row[0].set_title(title)
        for axes, (name, column) in zip(row, COLUMNS.items(), strict=True):
            axes.set(xscale="log", ylabel=name)
            axes.xaxis.set_minor_formatter(NullFormatter())  # numbers at powers of 10 alone
            draw_against(axes, of_objective(groups, objective), "steps", column)
    for axes in panels[-1]:
        axes.set_xlabel("training steps")
    add_legend(result, panels.flat, len(TABLES))
    return result


def of_objective(groups: Mapping[str, list[Group]], objective: str) -> list[Group]:
    """The runs whose orders one objective learned, labelled by their training set."""
    return [
        group._replace(label=training_set, style=TRAINING_SETS[training_set])
        for training_set in TABLES
        for group in groups[training_set]
        if group.runs.activation["objective"] == objective
    ]
