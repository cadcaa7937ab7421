"""Figures of studies: accuracy by learning rate, and accuracy of attention by the length of the sequence."""

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from reporting.figures import figure
from reporting.figures.drawing import draw_means, label_lines, label_share, stack_of_panels
from reporting.look.palette import look_of
from reporting.records.kept_runs import KeptRuns, LeftOut
from reporting.records.statistics import POINTS
from reporting.records.yaml_files import read_yaml

LOWEST = -12  # percentage points: some fall far below at extreme rates, and with them the other curves would look flat


@figure("learning_rates")
def draw_learning_rates(kept: KeptRuns) -> Figure:
    """A panel for each data set: the difference to softmax at softmax's best rate; means, lowest and highest."""
    data_sets, contenders = _of_study(kept, "learning_rates", "test accuracy", "data_set")
    result, panels = stack_of_panels(len(data_sets), 2.6)
    for axes, (data_set, rows) in zip(panels, data_sets, strict=True):
        best = rows[rows["contender"] == "softmax"].groupby("learning_rate")["value"].mean().max()
        for contender, own in rows.groupby("contender", sort=False):
            style = look_of(_activation(contenders[contender]))
            by_rate = (POINTS * (own["value"] - best)).groupby(own["learning_rate"])
            draw_means(axes, by_rate, contender, style.colour, marker=style.marker, markersize=4)
        axes.axhline(0, color="black", linewidth=0.8, linestyle=":")
        title = f"{data_set}, {rows['seed'].nunique()} seeds: accuracy by learning rate"
        axes.set(xscale="log", ylim=(LOWEST, None), title=title, xlabel="learning rate of the network")
        axes.set_ylabel("accuracy minus softmax's\nat its best rate, points")
    label_lines(result, panels)
    return result


@figure("length_generalisation")
def draw_length_generalisation(kept: KeptRuns) -> Figure:
    """A panel for each problem: means over seeds, in a band from the lowest to the highest; dashed without log n."""
    problems, contenders = _of_study(kept, "length_generalisation", "accuracy", "problem")
    result, panels = stack_of_panels(len(problems), 2.6)
    for axes, (problem, rows) in zip(panels, problems, strict=True):
        for contender, own in rows.groupby("contender", sort=False):
            settings = contenders[contender]
            style = look_of(settings["activation"])
            line = {"marker": style.marker, "linestyle": "-" if settings["log_length"] else "--"}
            draw_means(axes, own.groupby("length")["value"], contender, style.colour, **line)
        axes.set_xscale("log", base=2)
        lengths = sorted(rows["length"].unique())
        axes.set_xticks(lengths, lengths)
        axes.set(title=f"{problem} (made up), {rows['seed'].nunique()} seeds", xlabel="length of the sequence")
        label_share(axes, "accuracy")
    label_lines(result, panels)
    return result


def _of_study(
    kept: KeptRuns, study: str, metric: str, column: str
) -> tuple[list[tuple[Any, pd.DataFrame]], dict[str, Any]]:
    """The records of a study with one metric, divided by the values of a column; and the settings of each contender."""
    path = kept.results / "studies" / f"{study}.csv"
    if not path.exists():
        raise LeftOut(f"there are no records {path.name}")
    records = pd.read_csv(path)
    contenders = read_yaml(path.with_suffix(".yaml"))["settings"]["contenders"]
    return list(records[records["metric"] == metric].groupby(column, sort=False)), contenders


def _activation(overrides: list[str]) -> dict[str, str]:
    """The name and the objective of the activation that a contender's settings choose."""
    chosen = dict(override.split("=", 1) for override in overrides)
    return {"name": chosen["activation"], "objective": chosen.get("activation.objective", "")}
