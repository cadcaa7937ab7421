"""Test accuracy by learning rate, under every activation: the study of learning rates."""

from matplotlib.figure import Figure

from reporting.drawing import draw_means, label_lines, say_range, stack_of_panels
from reporting.figures import figure
from reporting.kept_runs import KeptRuns
from reporting.palette import look_of


@figure("learning_rates")
def draw_learning_rates(kept: KeptRuns) -> Figure:
    """A panel for each data set: means over seeds, in a band from the lowest to the highest."""
    records = kept.of_study("learning_rates")
    accuracies = records[records["metric"] == "test accuracy"]
    data_sets = list(accuracies.groupby("data_set", sort=False))
    result, panels = stack_of_panels(len(data_sets), 2.6)
    for axes, (data_set, rows) in zip(panels, data_sets, strict=True):
        for contender, own in rows.groupby("contender", sort=False):
            style = look_of(_activation(records.attrs["contenders"][contender]))
            by_rate = own.groupby("learning_rate")["value"]
            draw_means(axes, by_rate, contender, style.colour, marker=style.marker, markersize=4)
        axes.set_xscale("log")
        axes.set(title=f"{data_set}, {rows['seed'].nunique()} seeds", xlabel="learning rate of the network")
        say_range(axes, "test accuracy")
    label_lines(result, panels)
    return result


def _activation(overrides: list[str]) -> dict[str, str]:
    """The name and the objective of the activation that a contender's settings choose."""
    chosen = dict(override.split("=", 1) for override in overrides)
    return {"name": chosen["activation"], "objective": chosen.get("activation.objective", "")}
