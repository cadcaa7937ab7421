"""Figures of studies: activations at their own learning rates, and attention by the length of the sequence."""

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from reporting.figures import figure
from reporting.figures.drawing import (
    FILLED,
    WIDTH,
    draw_interval,
    draw_means,
    headline,
    label_lines,
    label_share,
    name_rows,
    stack_of_panels,
)
from reporting.look.palette import look_of
from reporting.records.kept_runs import KeptRuns, LeftOut
from reporting.records.statistics import POINTS
from reporting.records.yaml_files import read_yaml
from reporting.text.words import in_words


@figure("learning_rates")
def draw_learning_rates(kept: KeptRuns) -> Figure:
    """A panel for each data set: each activation minus softmax, both at the rates that their validation parts chose."""
    settings = _settings(kept, "learning_rates")
    cells = pd.read_csv(kept.results / "studies" / "learning_rates_tables.csv")
    looks = {name: look_of(_activation(of)) for name, of in settings["contenders"].items() if name != "softmax"}
    result = Figure(figsize=(WIDTH, 3.2), layout="constrained")
    [panels] = result.subplots(1, len(settings["data_sets"]), sharey=True, squeeze=False)
    differ = []
    for axes, (data_set, entry) in zip(panels, settings["data_sets"].items(), strict=True):
        shown = cells[cells["table"] == f"{data_set}: test accuracy minus softmax, each at its own rate"]
        numbers = POINTS * shown.pivot(index="row", columns="column", values="value").astype(float)
        for row, (name, look) in enumerate(looks.items()):
            low, mean, high = numbers.loc[name, ["low", "difference", "high"]]
            differ.append(draw_interval(axes, row, (low, mean, high), look))
        axes.set_title(f"{in_words(data_set)},\n{len(entry['seeds'])} seeds")
        name_rows(axes, [*map(in_words, looks)])
    found = f"{differ.count(False)} of {len(differ)} intervals"
    headline(result, f"Each activation at its own learning rate: {found} of the difference to softmax contain 0")
    result.supxlabel(f"test accuracy minus softmax's, percentage points\n{FILLED} Scales differ.", fontsize="medium")
    return result


@figure("length_generalisation")
def draw_length_generalisation(kept: KeptRuns) -> Figure:
    """A panel for each problem: means over seeds, in a band from the lowest to the highest; dashed without log n."""
    contenders = _settings(kept, "length_generalisation")["contenders"]
    records = pd.read_csv(kept.results / "studies" / "length_generalisation.csv")
    problems = list(records[records["metric"] == "accuracy"].groupby("problem", sort=False))
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


def _settings(kept: KeptRuns, study: str) -> dict[str, Any]:
    """The settings with which a study was measured."""
    path = kept.results / "studies" / f"{study}.yaml"
    if not path.exists():
        raise LeftOut(f"there are no records of the study {study}")
    settings: dict[str, Any] = read_yaml(path)["settings"]
    return settings


def _activation(overrides: list[str]) -> dict[str, str]:
    """The name and the objective of the activation that a contender's settings choose."""
    chosen = dict(override.split("=", 1) for override in overrides)
    return {"name": chosen["activation"], "objective": chosen.get("activation.objective", "")}
