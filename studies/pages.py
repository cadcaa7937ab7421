"""Writes the pages of the studies: the tables of each study, and one table of all findings."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.files import write_atomically
from reporting.markdown import narrow, paragraph
from reporting.marked_text import fill, parts
from studies.study import Finding, Report

ORDER = (
    "forensics",
    "training_recipes",
    "mixed_precision",
    "prediction_sets",
    "boosting",
    "length_generalisation",
    "calibration",
    "soft_labels",
    "human_labels",
    "learning_rates",
)
COLUMNS = {  # of a study's findings
    "use": "use",
    "contender": "helps",
    "opponent": "against",
    "verdict": "verdict",
    "difference": "by",
    "data sets": "data_sets",
    "seeds or splits": "seeds",
}
COMMAND = "python -m studies"


def write_tables(path: Path, report: Report, source: dict[str, Any]) -> None:
    """Write the tables of a study, the notes on them, and the origin of the records."""
    parts = [f"# {source['title']}"]
    for title, table in report.tables.items():
        parts += [f"## {title}", narrow(table)]
    parts += map(paragraph, [*report.notes, _origin(path.stem, source)])
    write_atomically(path, "\n\n".join(parts) + "\n")


def _origin(name: str, source: dict[str, Any]) -> str:
    commits = ", ".join(commit[:12] for commit in source["commit"])
    hardware = ", ".join(f"{key} {value}" for key, value in source["hardware"].items() if value is not None)
    packages = ", ".join(f"{key} {value}" for key, value in source["packages"].items())
    return (
        f"Records: [{name}.csv]({name}.csv), {source['tasks']} tasks, {source['seconds']} s on one core; settings: "
        f"[studies/{name}.yaml](../../studies/{name}.yaml). Commit {commits}{', dirty' if source['dirty'] else ''}, "
        f"{source['finished']}. {hardware}. Python {source['python']}, {packages}. Repeat: `{source['repeat']}`."
    )


def write_findings(path: Path, findings: Mapping[str, tuple[str, list[Finding]]], tables: Path) -> None:
    """Write the findings of all studies between the page's marks: a table for each study, below its name.

    Args:
        path: the page.
        findings: title and findings of each study, by name.
        tables: the folder of the studies' tables, as the page links to it.
    """
    parts_of_page = []
    for name, (title, found) in sorted(findings.items(), key=_place):
        links = f"**[{title.partition(':')[0]}](studies/{name}.md)** ([tables](../{tables}/{name}.md))"
        parts_of_page += [links, pd.DataFrame(list(_lines(found))).to_markdown(index=False, disable_numparse=True)]
    text = path.read_text(encoding="utf-8")
    assert "studies" in parts(text, COMMAND), f"{path}: the marks of the table are gone"
    write_atomically(path, fill(text, COMMAND, lambda _: "\n\n".join(parts_of_page)))


def _lines(found: list[Finding]) -> Iterator[dict[str, str]]:
    """A line for each finding. Findings with the same use show it in the first line only."""
    for number, finding in enumerate(found):
        cells = {column: str(getattr(finding, field)) for column, field in COLUMNS.items()}
        yield cells | ({"use": ""} if number > 0 and finding.use == found[number - 1].use else {})


def _place(study: tuple[str, Any]) -> tuple[int, str]:
    name, _ = study
    return ORDER.index(name) if name in ORDER else len(ORDER), name
