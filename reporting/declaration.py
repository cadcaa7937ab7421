"""What results/tables.yaml declares: the tables to rebuild and the claims to decide."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from reporting.palette import label
from reporting.statistics import Bootstrap

# The paper's mean and standard deviation (NaN where it prints none), by row and metric.
Numbers = dict[str, dict[str, tuple[float, float]]]


class TableError(ValueError):
    """A declaration or records that no table can be built from."""


@dataclass
class Row:
    """A row of a table.

    Attributes:
        select: values of `config.activation` that pick the row's records.
        published: the paper's name of the row, None where the paper has none.
    """

    select: dict[str, Any]
    published: str | None


@dataclass
class Claim:
    """A claim of the paper, decided for each of its rows.

    Attributes:
        text: the claim in words.
        metric: the metric it is about.
        rows: names of the rows it is about.
        against: rows whose mean the rows are compared with; empty for a claim about a level.
    """

    text: str
    metric: str
    rows: list[str]
    against: list[str]


@dataclass
class Table:
    """A table of the paper.

    Attributes:
        title: its title.
        experiment: the experiment whose records fill it.
        seeds: seeds that every row must have.
        repeat: command that repeats the experiment and the table.
        baseline: values of `config.activation` of the runs that differences are taken to.
        published: the paper's name of the table.
        rows: its rows by name.
        claims: the paper's claims about it.
    """

    title: str
    experiment: str
    seeds: list[int]
    repeat: str
    baseline: dict[str, Any]
    published: str
    rows: dict[str, Row]
    claims: list[Claim]


@dataclass
class Declaration:
    """All of results/tables.yaml.

    Attributes:
        published: name of the file under published/ with the paper's numbers.
        published_decimals: decimals the paper prints.
        bootstrap: how intervals are drawn.
        metrics: metrics shown, their names in the records and in the tables.
        compared: the metric whose difference to the baseline is shown.
        tables: the tables by name.
    """

    published: str
    published_decimals: int
    bootstrap: Bootstrap
    metrics: dict[str, str]
    compared: str
    tables: dict[str, Table]


def load_declaration(results: Path) -> Declaration:
    """Read and check tables.yaml.

    Args:
        results: folder that holds it.

    Returns:
        The declaration.

    Raises:
        TableError: for a missing file, an unknown or missing key, a value of the wrong type, a
            doubled row, or a claim about a row or a metric that is not declared.
    """
    path = results / "tables.yaml"
    try:
        schema = OmegaConf.structured(Declaration)
        declaration = OmegaConf.to_object(OmegaConf.merge(schema, OmegaConf.load(path)))
    except FileNotFoundError as error:
        raise TableError(f"{path}: no such file; name the folder that holds it") from error
    except (OmegaConfBaseException, yaml.YAMLError) as error:
        raise TableError(f"{path}: {error}") from error
    assert isinstance(declaration, Declaration)
    _check_names([declaration.compared], declaration.metrics, "metric", f"{path}: compared")
    for name, table in declaration.tables.items():
        labels = [label(row.select) for row in table.rows.values()]
        if doubled := {text for text in labels if labels.count(text) > 1}:
            raise TableError(f"{path}: {name} has several rows for {sorted(doubled)}; keep one")
        for claim in table.claims:
            place = f"{path}: claim {claim.text!r} of {name}"
            _check_names(claim.rows + claim.against, table.rows, "row", place)
            _check_names([claim.metric], declaration.metrics, "metric", place)
            for row in claim.rows + claim.against:
                if table.rows[row].published is None:
                    raise TableError(f"{place}: row {row!r} has no published numbers to claim")
    return declaration


def load_numbers(results: Path, declaration: Declaration) -> dict[str, Numbers]:
    """Read the paper's numbers of every declared table.

    Args:
        results: folder that holds published/<declaration.published>.yaml.
        declaration: the tables declared.

    Returns:
        The paper's numbers by table, row and metric, tables and rows by their declared names.

    Raises:
        TableError: for a missing file, or a table, row or metric that it does not have.
    """
    path = results / "published" / f"{declaration.published}.yaml"
    if not path.is_file():
        raise TableError(f"{path}: no such file; tables.yaml asks for it as `published`")
    printed = yaml.safe_load(path.read_text("utf-8"))
    tables: dict[str, Numbers] = {}
    for name, table in declaration.tables.items():
        _check_names([table.published], printed, "table", f"{path}, asked for {name}")
        tables[name] = {}
        for row, spec in table.rows.items():
            if spec.published is not None:
                place = f"{path}, asked for row {row!r} of {name}"
                _check_names([spec.published], printed[table.published], "row", place)
                numbers = printed[table.published][spec.published]
                _check_names(declaration.metrics, numbers, "metric", place)
                tables[name][row] = {m: _mean_and_std(numbers[m]) for m in declaration.metrics}
    return tables


def _mean_and_std(printed: float | list[float]) -> tuple[float, float]:
    mean, std = printed if isinstance(printed, list) else (printed, nan)
    return mean, std


def _check_names(names: Iterable[str], known: Iterable[str], kind: str, place: str) -> None:
    for name in names:
        if name not in known:
            raise TableError(f"{place}: there is no {kind} {name!r}; there are {sorted(known)}")
