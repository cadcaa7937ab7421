"""Writes a page and the tables of each study from its records, and the findings of all studies on one page."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from experiments.errors import UserError
from experiments.files import write_atomically
from reporting.text.markdown import key_columns, paragraph
from reporting.text.marked_text import fill, parts
from reporting.text.words import in_words
from studies.study import Finding, Report, Study, load_study

COMMAND = "python -m studies"


def rebuild_pages(folder: Path, page: Path, linked: Path) -> None:
    """Rebuild the page and the tables of every study with records in a folder, and the findings of all on a page.

    Args:
        folder: of the records. The pages NAME.md and the tables NAME_tables.csv are written beside them.
        page: its table of studies has the question of each, and decides the order of the findings.
        linked: the folder of the records, as the page links to it.
    """
    text = page.read_text(encoding="utf-8")
    assert "studies" in parts(text, COMMAND), f"{page}: the marks of the findings are gone"
    findings = []
    for path in sorted(folder.glob("*.yaml"), key=lambda path: text.find(f"(studies/{path.stem}.md)")):
        study, source = load_study(path.stem), yaml.safe_load(path.read_text(encoding="utf-8"))
        report = study.report(pd.read_csv(path.with_suffix(".csv")), source["settings"], study.shown)
        write_atomically(path.with_suffix(".md"), _page(study, report, source, _question(text, study.name)))
        cells = pd.concat(_cells(title, table) for title, table in report.tables.items())
        write_atomically(folder / f"{study.name}_tables.csv", cells.to_csv(index=False, lineterminator="\n"))
        if report.findings:
            title = source["title"].partition(":")[0]
            findings.append(f"**[{title}](studies/{study.name}.md)** ([tables](../{linked}/{study.name}.md))")
            findings.append(_table_of_findings(report.findings))
    write_atomically(page, fill(text, COMMAND, lambda _: "\n\n".join(findings)))


def _question(text: str, name: str) -> str:
    """The question of a study in the table of studies: the cell after the link to its page."""
    found = re.search(rf"\(studies/{name}\.md\) \| (.+?) \|", text)
    if not found:
        row = f"| [TITLE](studies/{name}.md) | QUESTION | TABLES |"
        raise UserError(f"{name} has no question in the table of studies; add the row: {row}")
    return found[1]


def _page(study: Study, report: Report, source: dict[str, Any], question: str) -> str:
    """What a study asked, its main tables, what it found, and where the other tables and the records are."""
    name = study.name
    written = [f"# {source['title']}", f"**Asked.** {question}"]
    for title, columns in study.shown["main"].items():
        table = report.tables[title]
        written += [f"## {in_words(title)}", _table(table[columns or list(table)])]
    counts = Counter(finding.verdict for finding in report.findings)
    listed = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    verdicts = f"[Verdicts](../../docs/studies.md#all-verdicts): {listed}. " if counts else ""
    written += [f"**Found.** {verdicts}[In words](../../docs/studies/{name}.md)."]
    origin = (
        f"Every table: [{name}_tables.csv]({name}_tables.csv). Records: [{name}.csv]({name}.csv), "
        f"{source['tasks']} tasks, {source['seconds']} s on one core; their settings, code, machine and packages: "
        f"[{name}.yaml]({name}.yaml). Repeat: `{source['repeat']}`."
    )
    return "\n\n".join([*written, *map(paragraph, [*report.notes, origin])]) + "\n"


def _cells(title: str, table: pd.DataFrame) -> pd.DataFrame:
    """The cells of a table, one a line. As many of the first columns as distinguish all rows name the row."""
    texts = table.astype(str)
    names = key_columns(texts)
    return pd.DataFrame(
        {"table": title, "row": ", ".join(row[names]), "column": column, "value": row[column]}
        for _, row in texts.iterrows()
        for column in texts.columns.drop(names)
    )


def _table_of_findings(findings: list[Finding]) -> str:
    table = pd.DataFrame(findings).astype(str).rename(columns=lambda name: name.replace("_", " "))
    table["use"] = table["use"].mask(table["use"] == table["use"].shift(), "")  # said once for lines with the same use
    return _table(table)


def _table(texts: pd.DataFrame) -> str:
    readable = texts.astype(str).map(in_words).rename(columns=in_words)
    return readable.to_markdown(index=False, disable_numparse=True)
