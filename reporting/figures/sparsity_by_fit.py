"""Sparsity on test against accuracy and against macro-F1 on train, on three training sets, under each objective."""

from matplotlib.figure import Figure

from reporting.drawing import WIDTH, add_legend, draw_against
from reporting.figures import figure
from reporting.figures.class_frequencies import TABLES, of_objective
from reporting.kept_runs import KeptRuns
from reporting.palette import OBJECTIVES

FIT = {"accuracy on train": "train/accuracy", "macro-F1 on train": "train/macro_f1"}


@figure("sparsity_by_fit")
def draw_sparsity_by_fit(kept: KeptRuns) -> Figure:
    """A column of panels for each objective, with a line for each run."""
    groups = {name: kept.of_table(table) for name, table in TABLES.items()}
    result = Figure(figsize=(WIDTH, 4.2), layout="constrained")
    panels = result.subplots(len(FIT), len(OBJECTIVES), sharex=True, sharey=True, squeeze=False)
    for row, (name, column) in zip(panels, FIT.items(), strict=True):
        for axes, objective in zip(row, OBJECTIVES, strict=True):
            axes.set(xlabel=name, xticks=(0, 0.5, 1))
            axes.tick_params(labelbottom=True)  # the rows measure different things
            draw_against(axes, of_objective(groups, objective), column, "test/sparsity")
        row[0].set_ylabel("sparsity on test")
    for axes, (title, _) in zip(panels[0], OBJECTIVES.values(), strict=True):
        axes.set_title(title)
    add_legend(result, panels.flat, len(TABLES))
    return result
