"""Accuracy of attention by the length of the sequence, under each map of scores to weights."""

from matplotlib.figure import Figure

from reporting.drawing import draw_means, label_lines, label_share, stack_of_panels
from reporting.figures import figure
from reporting.kept_runs import KeptRuns
from reporting.palette import look_of


@figure("length_generalisation")
def draw_length_generalisation(kept: KeptRuns) -> Figure:
    """A panel for each problem: means over seeds, in a band from the lowest to the highest; dashed without log n."""
    records = kept.of_study("length_generalisation")
    accuracies = records[records["metric"] == "accuracy"]
    problems = list(accuracies.groupby("problem", sort=False))
    result, panels = stack_of_panels(len(problems), 2.6)
    for axes, (problem, rows) in zip(panels, problems, strict=True):
        for contender, own in rows.groupby("contender", sort=False):
            settings = records.attrs["contenders"][contender]
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
