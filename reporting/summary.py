"""What an experiment's finished runs show: a table in the terminal and one figure."""

import argparse
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich import box
from rich.console import Console
from rich.table import Table

from experiments.files import replace_atomically
from reporting.palette import LINE_STYLES, label, look, rank
from reporting.records import Record, RecordError, finished_records

COLUMNS = {
    "accuracy": "accuracy",
    "macro_f1": "macro-F1",
    "sparsity": "sparsity",
    "support": "support",
    "coverage": "coverage",
    "brier": "Brier",
}


class Group(NamedTuple):
    """The runs of one configuration, over seeds."""

    label: str
    records: list[Record]
    style: dict[str, Any]

    def metrics(self) -> pd.DataFrame:
        """Metrics on test, a line a seed."""
        return pd.DataFrame([record["metrics"]["test"] for record in self.records])

    def curves(self) -> pd.DataFrame:
        """Test accuracy, a line an epoch and a column a seed."""
        curves = (pd.DataFrame(record["curves"]).set_index("epoch") for record in self.records)
        return pd.concat([curve["test/accuracy"] for curve in curves], axis="columns")


def group_runs(records: list[Record]) -> list[Group]:
    """Group records by configuration, each with a label and a style of its own.

    Args:
        records: records of one experiment.

    Returns:
        The groups, in the order of the palette. Configurations of one activation share its colour and marker and
        differ in their lines; where two have the same label, their run_id is added to it.
    """
    ordered = sorted(records, key=_order)
    runs = [list(group) for _, group in groupby(ordered, key=lambda record: record["run_id"])]
    labels = [_label(group[0]) for group in runs]
    groups: list[Group] = []
    used: dict[str, int] = {}
    for text, group in zip(labels, runs, strict=True):
        name = group[0]["config"]["activation"]["name"]
        line = LINE_STYLES[used.setdefault(name, 0) % len(LINE_STYLES)]
        used[name] += 1
        unique = text if labels.count(text) == 1 else f"{text} [{group[0]['run_id'][:8]}]"
        style = {"color": look(name).colour, "marker": look(name).marker, "linestyle": line}
        groups.append(Group(unique, group, style))
    return groups


def _order(record: Record) -> tuple[int, str, str]:
    return rank(record["config"]["activation"]["name"]), _label(record), record["run_id"]


def _label(record: Record) -> str:
    return label(record["config"]["activation"])


def metrics_table(experiment: str, groups: list[Group]) -> Table:
    """Table of mean ± standard deviation over seeds of every metric on test.

    Args:
        experiment: its name, for the title.
        groups: the runs.

    Returns:
        The table, ready to print: share of right answers, macro-F1, share of exact zeros, mean
        number of classes kept, share of examples whose class is kept, and Brier score.
    """
    title = f"{experiment}, test split: mean ± standard deviation over seeds"
    table = Table(title=title, box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("activation", min_width=len("activation"))
    for column in (*COLUMNS.values(), "seeds"):
        table.add_column(column, justify="right", min_width=len(column))
    for group in groups:
        metrics = group.metrics()
        cells = [_mean_and_std(metrics[metric]) for metric in COLUMNS]
        table.add_row(group.label, *cells, str(len(metrics)))
    return table


def _mean_and_std(values: pd.Series) -> str:
    mean = f"{values.mean():.3f}"
    return mean if len(values) == 1 else f"{mean} ±{values.std():.3f}"  # a narrow terminal breaks before the ±


def draw(experiment: str, groups: list[Group]) -> Figure:
    """Draw test accuracy against sparsity, and the learning curves.

    Args:
        experiment: its name, for the title.
        groups: the runs.

    Returns:
        The figure. Left: a pale point a seed, the mean with bars of one standard deviation.
        Right: the mean over seeds at each epoch, in a band from the lowest to the highest.
    """
    figure = Figure(figsize=(11, 4.8), layout="constrained")
    trade_off, learning = figure.subplots(1, 2)
    for group in groups:
        _draw_trade_off(trade_off, group)
        _draw_learning(learning, group)
    trade_off.set(
        xlabel="sparsity (share of exact zeros)",
        ylabel="test accuracy",
        title="points: seeds; bars: one standard deviation",
    )
    learning.set(xlabel="epoch", ylabel="test accuracy", title="lines: mean over seeds; bands: their range")
    learning.xaxis.get_major_locator().set_params(integer=True)
    handles, labels = learning.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(experiment)
    return figure


def _draw_trade_off(axes: Axes, group: Group) -> None:
    metrics = group.metrics()
    x, y = metrics["sparsity"], metrics["accuracy"]
    colour, marker = group.style["color"], group.style["marker"]
    axes.scatter(x, y, color=colour, marker=marker, s=18, alpha=0.35, linewidths=0)
    spread = metrics[["sparsity", "accuracy"]].std().fillna(0.0)  # one seed has no deviation
    axes.errorbar(
        x.mean(),
        y.mean(),
        xerr=spread["sparsity"],
        yerr=spread["accuracy"],
        color=colour,
        marker=marker,
        markersize=9,
        markeredgecolor="black",
        capsize=3,
    )


def _draw_learning(axes: Axes, group: Group) -> None:
    curves = group.curves()
    axes.plot(
        curves.index,
        curves.mean(axis="columns"),
        label=group.label,
        markeredgecolor="black",
        **group.style,
    )
    lowest, highest = curves.min(axis="columns"), curves.max(axis="columns")
    axes.fill_between(curves.index, lowest, highest, color=group.style["color"], alpha=0.15, linewidth=0)


def summarise(experiment: str, outputs: Path, console: Console) -> Path:
    """Print the table of an experiment and draw its figure.

    Args:
        experiment: name of the experiment.
        outputs: folder that holds the runs' folders; the figure goes to
            <outputs>/<experiment>/summary.svg and .png.
        console: where the table is printed.

    Returns:
        Path of the PNG.

    Raises:
        RecordError: where no run has finished, or a record is malformed or doubled.
    """
    groups = group_runs(finished_records(outputs, experiment))
    console.print(metrics_table(experiment, groups))
    figure = draw(experiment, groups)
    path = outputs / experiment / "summary.png"
    # Text stays text, and the same records give the same bytes.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "sharmix"}):
        replace_atomically(
            path.with_suffix(".svg"),
            lambda file: figure.savefig(file, format="svg", metadata={"Date": None}),
        )
    replace_atomically(path, lambda file: figure.savefig(file, format="png", dpi=150))
    return path


def main(arguments: list[str] | None = None) -> None:
    """Command line: print the table of an experiment and draw its figure."""
    parser = argparse.ArgumentParser(prog="python -m reporting.summary", description=__doc__)
    parser.add_argument("--experiment", required=True, help="name of the experiment")
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="the runs' folder")
    options = parser.parse_args(arguments)
    try:
        path = summarise(options.experiment, options.outputs, Console())
    except RecordError as error:
        raise SystemExit(f"error: {error}") from error
    print(f"figure: {path} (and {path.with_suffix('.svg').name})")


if __name__ == "__main__":
    main()
