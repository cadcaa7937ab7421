"""A summary of finished runs in the terminal: their tables, and how far the best activation is from softmax."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from math import nan
from pathlib import Path

import pandas as pd
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from experiments.metric_catalogue import METRICS, SHOTS, metric
from experiments.record import Record
from reporting.records import declaration
from reporting.records.collected_records import finished_records, missing_records, read_records
from reporting.records.declaration import Cell, Level, Numbers, load_declaration, load_numbers
from reporting.records.groups import Group, label_runs, style_groups
from reporting.records.runs import Runs
from reporting.records.selection import list_runs_by_code, of_one_code, records_of_row
from reporting.records.statistics import POINTS, estimate, paired_difference
from reporting.text.number_formats import (
    NOT_REACHED,
    NOTHING,
    as_printed,
    number,
    over_seeds,
    with_deviation,
    with_interval,
)

_GAP = 2  # characters between two columns


def tables(experiment: str, groups: list[Group], width: int) -> list[Table]:
    """The tables of an experiment's runs: the metrics that all measured; for long-tailed data, accuracy by class size.

    Where all runs have a validation part, or for translation a dev split, its table comes first: it chooses settings.

    Each group has one row. `width` is the terminal's, in characters: if it has no room for all metrics
    with deviations, it shows their means, or the first metrics.
    """
    records = [record for group in groups for record in group.runs.records]
    columns = {name: own.label for name, own in METRICS.items() if own.summarised}
    titles = {
        f"{experiment}, {split} split: mean ± standard deviation over seeds": (split, columns)
        for split in ("validation", "dev", "test")
        if split == "test" or all(split in record.metrics for record in records)
    }
    if rule := records[0].data.get("shot_rule"):
        by_size = {"accuracy": "All", **{f"{shots}_accuracy": shots.capitalize() for shots in SHOTS}}
        titles[f"{experiment}, test accuracy by the classes' examples: {rule}"] = "test", by_size
    shown = []
    for title, (split, columns) in titles.items():
        measured = [name for name in columns if all(name in record.metrics.get(split, {}) for record in records)]
        room = width - _width("activation", [group.label for group in groups]) - _GAP - len("seeds ")
        values = {name: [group.runs.values(split, name) for group in groups] for name in measured}
        cells = {name: [_mean_and_std(one) for one in of] for name, of in values.items()}
        means = {name: [f"{one.mean():.3f}" for one in of] for name, of in values.items()}
        if _taken(columns, cells) > room >= _taken(columns, means):
            cells, title = means, title.replace("mean ± standard deviation", "mean")
        while len(cells) > 1 and _taken(columns, cells) > room:
            cells.popitem()
        table = _table(title, ["activation"], [*(columns[name] for name in cells), "seeds"])
        for group, *row in zip(groups, *cells.values(), strict=True):
            table.add_row(escape(group.label), *row, str(len(group.runs)))
        if left_out := [columns[name] for name in measured if name not in cells]:
            table.caption = f"No room for: {', '.join(left_out)}."
        shown.append(table)
    return shown


def _taken(titles: Mapping[str, str], cells: Mapping[str, Sequence[str]]) -> int:
    """The characters of some columns."""
    return sum(_width(titles[name], of) + _GAP for name, of in cells.items())


def _width(title: str, cells: Iterable[str]) -> int:
    """Of a column, whose title may break between words."""
    return max(map(len, [*title.split(), *cells]))


def _table(title: str, texts: Iterable[str], numbers: Iterable[str]) -> Table:
    table = Table(title=escape(title), box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for text in texts:
        table.add_column(text, min_width=len(text), overflow="fold")
    for text in numbers:
        table.add_column(text, justify="right", min_width=max(map(len, text.split())))
    return table


def _mean_and_std(values: pd.Series) -> str:
    mean = f"{values.mean():.3f}"
    return mean if len(values) == 1 else f"{mean} ±{values.std():.3f}"


def comparison(table: declaration.Table, numbers: Numbers, recorded: list[Record], yours: list[Record]) -> Table:
    """The numbers of a declared table: theirs, the published ones; the recorded ones; and those of your runs.

    It has the rows of which you have runs, however many, and the split that is measured first, test where it is
    measured; a dash stands for a missing number.
    """
    measured = [columns for columns in table.columns if columns.measured]
    split = min((columns.split for columns in measured), key=lambda split: split != "test", default="test")
    shown = _table(f"{table.heading()}: theirs, recorded, yours", ["row", "number"], ["theirs", "recorded", "yours"])
    rows = {row: runs for row in table.rows if (runs := records_of_row(table, row, yours))}
    if without := len(table.rows) - len(rows):
        shown.caption = f"Left out: {without} of {len(table.rows)} rows, of which you have no runs."
    for row, your_runs in rows.items():
        text = escape(table.labels()[row])
        recorded_runs = records_of_row(table, row, recorded, table.seeds_of(row))
        for columns in (columns for columns in measured if columns.split == split):
            for cell, title in columns.titles().items():
                theirs = numbers.get(row, {}).get(cell, Level(nan))
                ours = (_ours(table, cell, runs, row, columns.decimals) for runs in (recorded_runs, your_runs))
                if theirs.half_width:
                    printed = as_printed(theirs.mean, theirs.half_width, columns.decimals)
                else:
                    printed = with_deviation(theirs.mean, theirs.std, columns.decimals)
                shown.add_row(text, f"{title}, {split}", printed, *ours)
                text = ""
        shown.add_section()
    return shown


def _ours(table: declaration.Table, cell: Cell, records: list[Record], row: str, decimals: int) -> str:
    if len({record.run_id for record in records}) > 1:
        return "several settings"
    runs = Runs(tuple(records))
    if not runs or not any(name in runs.measured for name in (f"{cell.split}/{cell.metric}", cell.metric)):
        return NOTHING
    values = runs.values(cell.split, cell.metric, cell.epoch or table.epoch)
    if values.empty:
        return NOT_REACHED
    of = len(table.seeds_of(row))
    return with_deviation(float(values.mean()), float(values.std()), decimals) + over_seeds(len(values), of)


def best_activation(experiment: str, groups: list[Group], confidence: float) -> str | None:
    """One sentence: how far the best activation of an experiment is from softmax on test, and what this rests on.

    None without runs of softmax, of one setting, and of another activation with the same seed, or without a number to
    compare. `confidence` is that of the interval of the difference, paired by seed.
    """
    name, unit = ("bleu", "BLEU") if "test/bleu" in groups[0].runs.measured else ("accuracy", "points of accuracy")
    if not all(f"test/{name}" in group.runs.measured for group in groups):
        return None
    values = {group.label: group.runs.values("test", name) for group in groups}
    baselines = [group for group in groups if group.runs.activation["name"] == "softmax"]
    others = [group for group in groups if group.runs.activation["name"] != "softmax"]
    if len(baselines) != 1 or not others:
        return None
    leads = [paired_difference(values[group.label], values[baselines[0].label]) for group in others]
    most = max(lead.size for lead in leads)  # an activation of fewer seeds could be the best by luck
    if not most:
        return None
    compared = [one for one in zip(others, leads, strict=True) if one[1].size == most]
    best, lead = max(compared, key=lambda one: one[1].mean())
    scale = 1 if metric(name).largest == 100 else POINTS
    ours = estimate(scale * lead, confidence)
    chosen = f"{best.label}, the best of {len(compared)}," if len(compared) > 1 else best.label
    if ours.seeds < 2:
        difference = f"{number(ours.mean, 2, '+')} {unit} from softmax with the same seed"
        return f"{experiment}: {chosen} is {difference}; one seed decides nothing."
    side = "ahead of" if ours.low > 0 else "behind" if ours.high < 0 else "not shown to differ from"
    found = f"is {side} softmax: {with_interval(ours.mean, ours.low, ours.high, 2, '+')} {unit}"
    of = max(len(group.runs) for group in (best, *baselines))
    basis = f"{confidence:.0%} interval by Student's t, {ours.seeds} seeds"
    basis += f" of {of}, those that both have" if ours.seeds < of else ""
    optimizers = [record.config["optimizer"] for group in groups for record in group.runs.records]
    basis += ", one learning rate for all" if len({one.get("learning_rate") for one in optimizers}) == 1 else ""
    basis += "; the best of several looks better than it is" if len(compared) > 1 else ""
    return f"{experiment}: {chosen} {found} ({basis})."


def summarise(experiments: Sequence[str], outputs: Path, results: Path, settings: Path, console: Console) -> None:
    """Print tables of the experiments' runs in `outputs`, beside the kept records in `results`.

    Warns where runs are of different code, and ends with the command that draws the runs.
    """
    declared = load_declaration(settings)
    numbers = load_numbers(settings, declared)
    records = {experiment: [*finished_records(outputs, experiment).values()] for experiment in experiments}
    styled = style_groups([label_runs(of_experiment) for of_experiment in records.values()])
    groups = dict(zip(records, styled, strict=True))
    for experiment, yours in records.items():
        recorded = [] if missing_records(results, experiment) else read_records(results, experiment)
        compared = [
            comparison(table, numbers[name], recorded, yours)
            for name, table in declared.tables.items()
            if table.experiment == experiment
        ]
        for table in (*tables(experiment, groups[experiment], console.width), *compared):
            if table.row_count:
                console.print(table)
                console.print()
        if not of_one_code(yours):
            console.print(
                f"warning: {experiment}: these runs are of different code: {list_runs_by_code(yours)}; "
                "repeat them with force=true",
                style="yellow",
                markup=False,
            )
    for experiment, own in groups.items():
        if said := best_activation(experiment, own, declared.confidence):
            console.print(said, style="bold", markup=False)
    command = f"python -m reporting report --outputs {shlex.quote(str(outputs))}"
    console.print(f"Figures: {command}", markup=False, soft_wrap=True)
