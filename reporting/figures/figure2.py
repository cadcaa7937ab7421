"""Figure 2: sparsity and r by epoch under learned orders, on training sets with different class frequencies."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reporting.declaration import Level, TrainingSets, load_numbers
from reporting.drawing import WIDTH, add_legend, draw_curves
from reporting.figures import figure
from reporting.kept_runs import KeptRuns, count_seeds
from reporting.palette import TRAINING_SETS


@figure("figure2")
def draw_figure2(kept: KeptRuns) -> Figure:
    """A row of two panels for each network and its training sets; the paper's levels are pale."""
    rows = kept.figure2()
    result = Figure(figsize=(WIDTH, 2.5 * len(rows) + 0.4), layout="constrained")
    panels = result.subplots(len(rows), 2, squeeze=False)
    for (sets, runs), (sparsity, order) in zip(rows, panels, strict=True):
        draw_curves(sparsity, runs, "test/sparsity")
        draw_curves(order, runs, "r")
        for name, level in published_sparsity(kept, sets).items():
            _draw_published(sparsity, name, *level)
        sparsity.set(title=f"{sets.title}, {count_seeds(runs)}", ylim=(-0.04, 1.04), ylabel="sparsity on test")
        order.set(ylim=(1, 2.05), ylabel="r")
    add_legend(result, panels.flat, 3)
    return result


def published_sparsity(kept: KeptRuns, sets: TrainingSets) -> dict[str, tuple[int, Level]]:
    """For each training set of which the paper prints a sparsity: the first epoch that it is of, and the sparsity."""
    numbers = load_numbers(kept.settings, kept.declaration)
    printed = {name: numbers[one.table][one.row] for name, one in sets.published.items()}
    return {
        name: min((cell.epoch or 1, level) for cell, level in cells.items() if cell.metric == "sparsity")
        for name, cells in printed.items()
    }


def _draw_published(axes: Axes, name: str, first: int, level: Level) -> None:
    half_width = max(level.half_width, 0.015)  # enough to be seen
    axes.fill_between(
        (first, axes.dataLim.x1),
        level.mean - half_width,
        level.mean + half_width,
        label=f"{name}, published (ImageNet)",
        color=TRAINING_SETS[name]["color"],
        alpha=0.25,
        linewidth=0,
    )
