"""Does sparsity follow the class frequencies? Sparsity on test against the fit on train, under learned orders."""

from matplotlib.figure import Figure

from reporting.drawing import WIDTH, add_legend, draw_against
from reporting.figures import figure
from reporting.kept_runs import KeptRuns, count_seeds

FIT = {"accuracy on train": "train/accuracy", "macro-F1 on train": "train/macro_f1"}


@figure("sparsity_by_fit")
def draw_sparsity_by_fit(kept: KeptRuns) -> Figure:
    """A row of panels for each network of Figure 2, with a line for each run, from its first epoch to its last."""
    rows = kept.figure2()
    result = Figure(figsize=(WIDTH, 2.5 * len(rows) + 0.4), layout="constrained")
    panels = result.subplots(len(rows), len(FIT), sharey=True, squeeze=False)
    for row, (sets, runs) in zip(panels, rows, strict=True):
        row[0].set(title=f"{sets.title}, {count_seeds(runs)}", ylabel="sparsity on test")
        for axes, (name, column) in zip(row, FIT.items(), strict=True):
            draw_against(axes, runs, column, "test/sparsity")
            axes.set(xlabel=name, xlim=(0, 1), ylim=(-0.02, 1))
    add_legend(result, panels.flat, 4)
    return result
