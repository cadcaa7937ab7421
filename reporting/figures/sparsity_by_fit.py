"""Does sparsity follow the class frequencies? Sparsity on test against accuracy on train, under learned orders."""

from matplotlib.figure import Figure

from reporting.drawing import WIDTH, add_legend, draw_against
from reporting.figures import figure
from reporting.kept_runs import KeptRuns, LeftOut, count_seeds


@figure("sparsity_by_fit")
def draw_sparsity_by_fit(kept: KeptRuns) -> Figure:
    """A panel for each network of Figure 2, with a line for each run: its epochs, from left to right as it fits."""
    rows = [(sets.title, kept.on_training_sets(sets)) for sets in kept.declaration.figures.figure2]
    rows = [(title, runs) for title, runs in rows if runs]
    if not rows:
        raise LeftOut("no training set of Figure 2 has records")
    result = Figure(figsize=(WIDTH, 3.2), layout="constrained")
    [panels] = result.subplots(1, len(rows), sharex=True, sharey=True, squeeze=False)
    for axes, (title, runs) in zip(panels, rows, strict=True):
        draw_against(axes, runs, "train/accuracy", "test/sparsity")
        axes.set(title=f"{title}, {count_seeds(runs)}", xlabel="accuracy on train", xlim=(0, 1), ylim=(-0.02, 1))
    panels[0].set_ylabel("sparsity on test")
    add_legend(result, panels, 4)
    return result
