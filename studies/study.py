"""What a study is: independent tasks, what each of them measures, and what the records of all say.

A study NAME is the module `studies/NAME.py` with three functions, and its settings `studies/NAME.yaml`:

    tasks(settings, data)            -> list[Task]   the pieces of work, each on its own, such as a data set and a split
    measure(task, settings, data)    -> list[Row]    what one of them gives
    report(records, settings, shown) -> Report       tables and findings, of the records of all tasks

`settings` is what the YAML file holds, without its part `report`: that is `shown`, which changes tables and no record.
Data sets that `settings` names under `networks` become the networks that `studied_networks.yaml` lists for them. `data`
is the folder of the data sets, or None where none is given. A task is a dictionary of texts and numbers. A row is
`contender`, `metric`, `value` and whatever else tells rows apart; the records are one table of all rows, each with the
keys of its task.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

import studies
from reporting.yaml_files import read_yaml
from studies.networks import studied_networks

Task = dict[str, Any]
Row = dict[str, Any]
Settings = dict[str, Any]


@dataclass(frozen=True)
class Finding:
    """One line of the table in docs/findings.md.

    Attributes:
        use: what somebody wants to do.
        helps: the contender.
        by: the metric, and how much the contender's differs from the opponent's, with its interval.
        against: the strongest plain opponent.
        data_sets: number of data sets.
        seeds: number of seeds or random splits of each.
        verdict: `gain`, `no gain`, `loss` or `undecided`.
    """

    use: str
    helps: str
    by: str
    against: str
    data_sets: int
    seeds: int
    verdict: str


@dataclass(frozen=True)
class Report:
    """What the records of a study say.

    Attributes:
        tables: by title, in the order of the page.
        findings: for the table of all studies.
        notes: what a reader of the tables has to know, a paragraph each.
    """

    tables: dict[str, pd.DataFrame]
    findings: list[Finding]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Study:
    """The module of a study, the settings of its measurements, and those of its report."""

    name: str
    title: str
    settings: Settings
    shown: Settings
    tasks: Callable[[Settings, Path | None], list[Task]]
    measure: Callable[[Task, Settings, Path | None], list[Row]]
    report: Callable[[pd.DataFrame, Settings, Settings], Report]


def available_studies() -> list[str]:
    """The names of all studies: the modules of this package that have settings beside them."""
    [folder] = studies.__path__
    return [module.name for module in pkgutil.iter_modules([folder]) if Path(folder, f"{module.name}.yaml").exists()]


def load_study(name: str) -> Study:
    """The study of this name; its title is the first line of its module's docstring, without the full stop."""
    module = importlib.import_module(f"studies.{name}")
    settings = read_yaml(Path(module.__file__).with_suffix(".yaml"))
    shown = settings.pop("report")
    if "networks" in settings:
        settings["networks"] = studied_networks(settings["networks"])  # records and their settings then name each run
    title = module.__doc__.splitlines()[0].rstrip(".")
    return Study(name, title, settings, shown, module.tasks, module.measure, module.report)
