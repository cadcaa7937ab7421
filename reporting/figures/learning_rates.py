"""Test accuracy by learning rate, under every activation: the study of learning rates."""

import pandas as pd
from matplotlib.figure import Figure

from reporting.drawing import label_lines, say_range, stack_of_panels
from reporting.figures import figure
from reporting.kept_runs import KeptRuns, LeftOut
from reporting.palette import look_of

ACTIVATIONS = {
    "softmax": {"name": "softmax"},
    "sparsemax": {"name": "sparsemax"},
    "1.5-entmax": {"name": "entmax"},
    "entmax, learned α": {"name": "entmax_learned"},
    "1.5-ReLU": {"name": "alpha_relu"},
    "2-normmax": {"name": "normmax"},
    "SharMiX (1.25, 1.5)": {"name": "sharmix_fixed"},
    "SharMiX learned": {"name": "sharmix_learned"},
    "SharMiX learned, brier": {"name": "sharmix_learned", "objective": "brier"},
    "SharMiX learned, log": {"name": "sharmix_learned", "objective": "log"},
}


@figure("learning_rates")
def draw_learning_rates(kept: KeptRuns) -> Figure:
    """A panel for each data set: means over seeds."""
    path = kept.results / "studies" / "learning_rates.csv"
    if not path.exists():
        raise LeftOut(f"there are no records {path.name}")
    records = pd.read_csv(path)
    accuracies = records[records["metric"] == "test accuracy"]
    data_sets = list(accuracies.groupby("data_set", sort=False))
    result, panels = stack_of_panels(len(data_sets), 2.6)
    for axes, (data_set, rows) in zip(panels, data_sets, strict=True):
        for contender, own in rows.groupby("contender", sort=False):
            style = look_of(ACTIVATIONS[contender])
            means = own.groupby("learning_rate")["value"].mean()
            axes.plot(means.index, means, label=contender, color=style.colour, marker=style.marker, markersize=4)
        axes.set_xscale("log")
        axes.set(title=f"{data_set}, {rows['seed'].nunique()} seeds", xlabel="learning rate of the network")
        say_range(axes, "test accuracy")
    label_lines(result, panels)
    return result
