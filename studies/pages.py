"""The pages that the records of studies are shown on: tables of each study, and one table of all findings."""

import re
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.files import write_atomically
from studies.study import Finding, Report

MARKS = "<!-- studies: begin, written by python -m studies -->", "<!-- studies: end -->"


def write_tables(path: Path, report: Report, source: dict[str, Any]) -> None:
    """Write the tables of a study, what a reader has to know of them, and where their records come from."""
    parts = [f"# {source['title']}"]
    for title, table in report.tables.items():
        parts += [f"## {title}", table.to_markdown(index=False, disable_numparse=True)]
    parts += [*report.notes, _origin(path.stem, source)]
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


def write_findings(path: Path, findings: Iterable[tuple[str, Finding]], tables: Path) -> None:
    """Write the findings of all studies, each with the name of its study, as the one table between the page's marks."""
    lines = [
        {**asdict(finding), "study": f"[{name}](studies/{name}.md), [table](../{tables}/{name}.md)"}
        for name, finding in findings
    ]
    titles = {"helps": "what helps", "by": "by how much", "data_sets": "data sets", "seeds": "seeds or splits"}
    table = pd.DataFrame(lines).rename(columns=titles).to_markdown(index=False, disable_numparse=True)
    text = path.read_text(encoding="utf-8")
    begin, end = map(re.escape, MARKS)
    new, count = re.subn(f"{begin}.*{end}", lambda _: f"{MARKS[0]}\n\n{table}\n\n{MARKS[1]}", text, flags=re.DOTALL)
    assert count == 1, f"{path}: the marks of the table are gone"
    write_atomically(path, new)
