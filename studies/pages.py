"""Writes the pages of the studies from their records: the tables of each study, and one table of all findings."""

from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from experiments.files import write_atomically
from reporting.markdown import narrow, paragraph
from reporting.marked_text import fill, parts
from studies.study import Finding, Report, load_study

COMMAND = "python -m studies"


def rebuild_pages(folder: Path, page: Path, linked: Path) -> None:
    """Rebuild the tables of every study with records in a folder, and the findings of all studies on a page.

    Args:
        folder: of the records; the tables are written beside them.
        page: its table of studies decides the order of the findings.
        linked: the folder of the tables, as the page links to it.
    """
    text = page.read_text(encoding="utf-8")
    assert "studies" in parts(text, COMMAND), f"{page}: the marks of the findings are gone"
    findings = []
    for path in sorted(folder.glob("*.csv"), key=lambda path: text.find(f"(studies/{path.stem}.md)")):
        study, source = load_study(path.stem), yaml.safe_load(path.with_suffix(".yaml").read_text(encoding="utf-8"))
        report = study.report(pd.read_csv(path), source["settings"], study.shown)
        write_atomically(path.with_suffix(".md"), _tables(study.name, report, source))
        if report.findings:
            title = source["title"].partition(":")[0]
            findings.append(f"**[{title}](studies/{study.name}.md)** ([tables](../{linked}/{study.name}.md))")
            findings.append(_table_of_findings(report.findings))
    write_atomically(page, fill(text, COMMAND, lambda _: "\n\n".join(findings)))


def _tables(name: str, report: Report, source: dict[str, Any]) -> str:
    """The page of a study: its tables, the notes on them, and the origin of the records."""
    written = [f"# {source['title']}"]
    for title, table in report.tables.items():
        written += [f"## {title}", narrow(table)]
    written += map(paragraph, [*report.notes, _origin(name, source)])
    return "\n\n".join(written) + "\n"


def _origin(name: str, source: dict[str, Any]) -> str:
    commits = ", ".join(commit[:12] for commit in source["commit"])
    hardware = ", ".join(f"{key} {value}" for key, value in source["hardware"].items() if value is not None)
    packages = ", ".join(f"{key} {value}" for key, value in source["packages"].items())
    return (
        f"Records: [{name}.csv]({name}.csv), {source['tasks']} tasks, {source['seconds']} s on one core; settings: "
        f"[studies/{name}.yaml](../../studies/{name}.yaml). Commit {commits}{', dirty' if source['dirty'] else ''}, "
        f"{source['finished']}. {hardware}. Python {source['python']}, {packages}. Repeat: `{source['repeat']}`."
    )


def _table_of_findings(findings: list[Finding]) -> str:
    table = pd.DataFrame(findings).astype(str).rename(columns=lambda name: name.replace("_", " "))
    table["use"] = table["use"].mask(table["use"] == table["use"].shift(), "")  # said once for lines with the same use
    return table.to_markdown(index=False, disable_numparse=True)
