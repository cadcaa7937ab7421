"""Test accuracy by learning rate, under every activation: the study of learning rates."""

from matplotlib.figure import Figure

from reporting.drawing import draw_means, label_lines, stack_of_panels
from reporting.figures import figure
from reporting.kept_runs import KeptRuns
from reporting.palette import look_of
from reporting.statistics import POINTS

LOWEST = -12  # percentage points: at extreme rates some activations fall far below, and would flatten the rest


@figure("learning_rates")
def draw_learning_rates(kept: KeptRuns) -> Figure:
    """A panel for each data set: the difference to softmax at softmax's best rate, means over seeds in their range."""
    records = kept.of_study("learning_rates")
    accuracies = records[records["metric"] == "test accuracy"]
    data_sets = list(accuracies.groupby("data_set", sort=False))
    result, panels = stack_of_panels(len(data_sets), 2.6)
    for axes, (data_set, rows) in zip(panels, data_sets, strict=True):
        best = rows[rows["contender"] == "softmax"].groupby("learning_rate")["value"].mean().max()
        for contender, own in rows.groupby("contender", sort=False):
            style = look_of(_activation(records.attrs["contenders"][contender]))
            by_rate = (POINTS * (own["value"] - best)).groupby(own["learning_rate"])
            draw_means(axes, by_rate, contender, style.colour, marker=style.marker, markersize=4)
        axes.axhline(0, color="black", linewidth=0.8, linestyle=":")
        title = f"{data_set}, {rows['seed'].nunique()} seeds: accuracy by learning rate"
        axes.set(xscale="log", ylim=(LOWEST, None), title=title, xlabel="learning rate of the network")
        axes.set_ylabel("accuracy minus softmax's\nat its best rate, points")
    label_lines(result, panels)
    return result


def _activation(overrides: list[str]) -> dict[str, str]:
    """The name and the objective of the activation that a contender's settings choose."""
    chosen = dict(override.split("=", 1) for override in overrides)
    return {"name": chosen["activation"], "objective": chosen.get("activation.objective", "")}
