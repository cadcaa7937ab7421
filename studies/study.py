"""A study has independent tasks, measures each of them, and reports the records of all.

A study NAME is the module `studies/NAME.py` with three functions, and its settings `studies/NAME.yaml`:

    tasks(settings, data)            -> list[Task]   independent pieces of work, such as a data set and a split
    measure(task, settings, data)    -> list[Row]    the rows of one task
    report(records, settings, shown) -> Report       tables and findings from the records of all tasks

`settings` is the content of the YAML file without its part `report`. This part is `shown`: it changes tables, but no
record. Its `main` names the tables that the study's page shows, each with its columns. The data sets under `networks`
in the settings are replaced by their networks of `studied_networks.yaml`. `data` is the folder of the data sets, or
None. A task is a dictionary of texts and numbers. A row has `contender`, `metric`, `value` and whatever else
distinguishes rows. The records are one table of all rows with the keys of their tasks.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

import studies
from reporting.records.yaml_files import read_yaml
from studies.networks import studied_networks

Task = dict[str, Any]
Row = dict[str, Any]
Settings = dict[str, Any]


def rows_of(values: dict[str, float], **keys: Any) -> list[Row]:
    """A row for each metric with its value, and with the keys."""
    return [{**keys, "metric": metric, "value": float(value)} for metric, value in values.items()]


@dataclass(frozen=True)
class Finding:
    """A line of the table of all findings. Each field is a column."""

    use: str  # of a sparse output, which the study tests
    contender: str  # the sparse output
    opponent: str  # the strongest plain output
    verdict: str  # `gain`, `no gain`, `loss` or `undecided`
    difference: str  # the metric, and the contender's value minus the opponent's with its interval
    data_sets: int  # their number
    seeds_or_splits: int  # number of seeds or of random splits of each data set


@dataclass(frozen=True)
class Report:
    """The tables and findings of a study."""

    tables: dict[str, pd.DataFrame]  # by title
    findings: list[Finding]  # for the table of all studies; none where the study compares no uses of a sparse output
    notes: list[str] = field(default_factory=list)  # paragraphs that explain the tables


@dataclass(frozen=True)
class Study:
    """The module of a study, with the settings of its measurements and of its report."""

    name: str
    title: str
    settings: Settings
    shown: Settings
    tasks: Callable[[Settings, Path | None], list[Task]]
    measure: Callable[[Task, Settings, Path | None], list[Row]]
    report: Callable[[pd.DataFrame, Settings, Settings], Report]


def available_studies() -> list[str]:
    """The names of all studies, which are the modules of this package with a YAML file."""
    [folder] = studies.__path__
    return sorted(path.stem for path in Path(folder).glob("*.yaml") if path.with_suffix(".py").exists())


def load_study(name: str) -> Study:
    """The study with this name. Its title is the first line of its module's docstring, without the full stop."""
    module = importlib.import_module(f"studies.{name}")
    settings = read_yaml(Path(module.__file__).with_suffix(".yaml"))
    shown = settings.pop("report")
    if "networks" in settings:
        settings["networks"] = studied_networks(settings["networks"])  # so that records name each run
    title = module.__doc__.splitlines()[0].rstrip(".")
    return Study(name, title, settings, shown, module.tasks, module.measure, module.report)
