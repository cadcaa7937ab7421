"""Figure 2: does sparsity follow the class frequencies? And the same runs by their fit to the training set."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reporting.figures import figure
from reporting.figures.drawing import WIDTH, add_legend, draw_against, draw_curves
from reporting.look.palette import TRAINING_SETS
from reporting.records.declaration import TrainingSets
from reporting.records.groups import Group
from reporting.records.kept_runs import FITS, KeptRuns, LeftOut, count_seeds


@figure("figure2")
def draw_figure2(kept: KeptRuns) -> Figure:
    """A row of two panels for each network and its training sets; the paper's levels are pale."""
    rows = _rows(kept)
    result = Figure(figsize=(WIDTH, 2.5 * len(rows) + 0.4), layout="constrained")
    panels = result.subplots(len(rows), 2, squeeze=False)
    for (sets, runs), (sparsity, order) in zip(rows, panels, strict=True):
        draw_curves(sparsity, runs, "test/sparsity")
        draw_curves(order, runs, "r")
        _draw_published(sparsity, kept, sets)
        sparsity.set(title=f"{sets.title}, {count_seeds(runs)}", ylim=(-0.04, 1.04), ylabel="sparsity on test")
        order.set(ylim=(1, 2.05), ylabel="r")
    add_legend(result, panels.flat, 3)
    return result


@figure("sparsity_by_fit")
def draw_sparsity_by_fit(kept: KeptRuns) -> Figure:
    """A row of panels for each network of Figure 2, with a line for each run, from its first epoch to its last."""
    rows = _rows(kept)
    result = Figure(figsize=(WIDTH, 2.5 * len(rows) + 0.4), layout="constrained")
    panels = result.subplots(len(rows), len(FITS), sharey=True, squeeze=False)
    for row, (sets, runs) in zip(panels, rows, strict=True):
        row[0].set(title=f"{sets.title}, {count_seeds(runs)}", ylabel="sparsity on test")
        for axes, (name, column) in zip(row, FITS.items(), strict=True):
            draw_against(axes, runs, column, "test/sparsity")
            axes.set(xlabel=name, xlim=(0, 1), ylim=(-0.02, 1))
    add_legend(result, panels.flat, 4)
    return result


def _rows(kept: KeptRuns) -> list[tuple[TrainingSets, list[Group]]]:
    """The training sets of each network. Raises LeftOut if there are none."""
    if not kept.training_sets:
        raise LeftOut("no training set of Figure 2 has records")
    return kept.training_sets


def _draw_published(axes: Axes, kept: KeptRuns, sets: TrainingSets) -> None:
    """Draw the paper's sparsity on each training set as a pale band, from the first epoch for which it prints one."""
    for name, one in sets.published.items():
        printed = kept.numbers[one.table][one.row].items()
        first, level = min((cell.epoch or 1, level) for cell, level in printed if cell.metric == "sparsity")
        half_width = max(level.half_width, 0.015)  # a thinner band could not be seen
        axes.fill_between(
            (first, axes.dataLim.x1),
            level.mean - half_width,
            level.mean + half_width,
            label=f"{name}, published (ImageNet)",
            color=TRAINING_SETS[name]["color"],
            alpha=0.25,
            linewidth=0,
        )
