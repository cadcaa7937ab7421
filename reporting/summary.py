"""A summary of finished runs: tables in the terminal and one figure, for one experiment or several side by side."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from rich import box
from rich.console import Console
from rich.table import Table

from reporting.declaration import Bootstrap
from reporting.drawing import add_legend, draw_curves, draw_trade_off, rendered, say_range, style
from reporting.groups import Group, label_runs, style_groups
from reporting.plane import draw_paths, draw_plane
from reporting.records import finished_records
from reporting.same_code import list_runs_by_code, of_one_code
from reporting.statistics import POINTS, estimate, paired_difference
from reporting.whole_folders import replace_files

COLUMNS = {
    "accuracy": "accuracy",
    "macro_f1": "macro-F1",
    "sparsity": "sparsity",
    "support": "support",
    "coverage": "coverage",
    "brier": "Brier",
    "bleu": "BLEU",
    "chrf": "chrF",
}
SHOT_COLUMNS = {
    "accuracy": "All",
    "many_accuracy": "Many",
    "medium_accuracy": "Medium",
    "few_accuracy": "Few",
}
WIDE = 120  # in a narrower terminal deviations are below the means, not beside them


def metrics_table(title: str, groups: list[Group], columns: dict[str, str], width: int) -> Table:
    """A table of metrics on test: mean ± standard deviation over seeds.

    Args:
        title: its title.
        groups: the runs.
        columns: titles of the metrics, by their names in the records.
        width: of the terminal, in characters.

    Returns:
        The table, ready to print: one line for each configuration, with the number of its seeds last.
    """
    table = Table(title=title, box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("activation", min_width=len("activation"))
    for column in (*columns.values(), "seeds"):
        table.add_column(column, justify="right", min_width=len(column))
    between = " " if width >= WIDE else "\n"
    for group in groups:
        cells = [_mean_and_std(group.runs.values("test", metric), between) for metric in columns]
        table.add_row(group.label, *cells, str(len(group.runs)))
    return table


def _mean_and_std(values: pd.Series, between: str) -> str:
    mean = f"{values.mean():.3f}"
    return mean if len(values) == 1 else f"{mean}{between}±{values.std():.3f}"


def tables(experiment: str, groups: list[Group], width: int) -> list[Table]:
    """The tables of an experiment.

    Args:
        experiment: its name, for the titles.
        groups: its runs.
        width: of the terminal, in characters.

    Returns:
        A table of the metrics in `COLUMNS` that all runs measured; for long-tailed data, also a table of accuracy by
        the number of training examples of a class.
    """
    title = f"{experiment}, test split: mean ± standard deviation over seeds"
    records = [record for group in groups for record in group.runs.records]
    measured = set.intersection(*(set(record.metrics.get("test", {})) for record in records))
    columns = {metric: column for metric, column in COLUMNS.items() if metric in measured}
    shown = [metrics_table(title, groups, columns, width)]
    if "shot_rule" in records[0].data:
        columns = {metric: column for metric, column in SHOT_COLUMNS.items() if metric in measured}
        rule = f"{experiment}, test accuracy by the classes' examples: {records[0].data['shot_rule']}"
        shown.append(metrics_table(rule, groups, columns, width))
    return shown


@style()
def draw(experiments: dict[str, list[Group]]) -> Figure:
    """Draw test accuracy against sparsity, the learning curves, and the paths of learned (q, r).

    Args:
        experiments: the runs of each experiment.

    Returns:
        The figure, with one row for each experiment. Left: a pale point for each seed, the mean with bars of one
        standard deviation. Middle: the mean over seeds at each epoch, in a band from the lowest to the highest. Right:
        a path for each seed.
    """
    figure = Figure(figsize=(14, 4.3 * len(experiments) + 0.8), layout="constrained")
    axes = figure.subplots(len(experiments), 3, squeeze=False)
    for (experiment, groups), (trade_off, learning, plane) in zip(experiments.items(), axes, strict=True):
        draw_trade_off(trade_off, groups)
        draw_curves(learning, groups, "test/accuracy")
        draw_plane(plane)
        draw_paths(plane, groups)
        trade_off.set_title(f"{experiment}\npoints: seeds; bars: one standard deviation")
        learning.set_title("lines: mean over seeds; bands: their range")
        say_range(learning, "test accuracy")
        plane.set_title("paths of learned (q, r), from ring to marker")
    add_legend(figure, [*axes[:, 1], *axes[:, 2]], columns=4)
    return figure


def verdict(experiment: str, groups: list[Group], bootstrap: Bootstrap) -> str | None:
    """One sentence: whether the best activation of an experiment beats softmax on test.

    Args:
        experiment: its name.
        groups: its runs.
        bootstrap: how the interval of the difference, paired by seed, is drawn.

    Returns:
        The sentence; None without runs of softmax and of another activation.
    """
    metric, unit = ("bleu", "BLEU") if "test/bleu" in groups[0].runs.measured else ("accuracy", "points of accuracy")
    values = {group.label: group.runs.values("test", metric) for group in groups}
    baselines = [group for group in groups if group.runs.activation["name"] == "softmax"]
    others = [group for group in groups if group.runs.activation["name"] != "softmax"]
    if len(baselines) != 1 or not others:
        return None
    best = max(others, key=lambda group: values[group.label].mean())
    scale = 1 if metric == "bleu" else POINTS
    ours = estimate(scale * paired_difference(values[best.label], values[baselines[0].label]), bootstrap)
    if ours.seeds < 2:
        return f"{experiment}: {best.label} is {ours.mean:+.2f} {unit} from softmax; one seed decides nothing"
    interval = (
        f"{ours.mean:+.2f} {unit} from softmax, {bootstrap.confidence:.0%} interval [{ours.low:+.2f}, {ours.high:+.2f}]"
    )
    if ours.seeds < (most := max(len(group.runs) for group in (best, *baselines))):
        interval += f" over the {ours.seeds} of {most} seeds that both have"
    if ours.low > 0:
        return f"{experiment}: {best.label} beats softmax ({interval})"
    if ours.high < 0:
        return f"{experiment}: softmax beats all others (the best, {best.label}: {interval})"
    return f"{experiment}: no activation clearly beats softmax (the best, {best.label}: {interval})"


def summarise(experiments: Sequence[str], outputs: Path, bootstrap: Bootstrap, console: Console) -> Path:
    """Print the tables of experiments and draw their figure; warn where runs are of different code.

    Args:
        experiments: names of the experiments.
        outputs: folder that holds the runs' folders; the figure goes to
            <outputs>/summary/<names joined by "-">.png, .svg and .pdf.
        bootstrap: how the intervals of the verdict are drawn.
        console: where the tables are printed.

    Returns:
        Path of the PNG.

    Raises:
        RecordError: where no run has finished, or a record is malformed or doubled.
    """
    records = {experiment: finished_records(outputs, experiment) for experiment in experiments}
    styled = style_groups([label_runs(of_experiment) for of_experiment in records.values()])
    groups = dict(zip(records, styled, strict=True))
    for experiment in groups:
        for table in tables(experiment, groups[experiment], console.width):
            console.print(table)
            console.print()
        if not of_one_code(records[experiment]):
            console.print(
                f"warning: {experiment}: these runs are of different code: {list_runs_by_code(records[experiment])}; "
                "repeat them with force=true",
                style="yellow",
            )
    verdicts = [verdict(experiment, own, bootstrap) for experiment, own in groups.items()]
    if said := [sentence for sentence in verdicts if sentence]:
        console.print(f"Verdict: {'; '.join(said)}.", style="bold", soft_wrap=True)
    files = rendered(draw(groups), "-".join(groups))
    replace_files(outputs / "summary", files, own=files)
    return outputs / "summary" / next(iter(files))
