"""The page of verdicts: how many claims reproduce, then every claim, sorted by its verdict."""

from typing import Any

import pandas as pd

from reporting.records.declaration import Declaration
from reporting.text.columns import Block, Column
from reporting.text.markdown import paragraph, pipe_table
from reporting.text.number_formats import NOTHING
from reporting.verdicts import NOT_REACHED_RULE, RULE, Verdict
from reporting.verdicts.outcomes import headline, ours, theirs


def verdict_page(declaration: Declaration, verdicts: pd.DataFrame) -> str:
    """The page in Markdown."""
    parts = [
        "# Verdicts on the papers' claims",
        paragraph(f"{headline(verdicts['test_verdict'])}."),
        _counts(declaration, verdicts),
        paragraph(RULE),
        paragraph(NOT_REACHED_RULE),
        f"*Ours* is the mean over seeds, with its Student's t interval ({declaration.confidence:.0%}) in brackets.",
    ]
    for verdict in Verdict:
        lines = verdicts[verdicts["test_verdict"] == verdict]
        if len(lines):
            parts.append(f"## {verdict.value.capitalize()}: {len(lines)}")
        for (name, claim), own in lines.groupby(["table", "claim"], sort=False):
            unit = ", in percentage points" if own["kind"].iloc[0] == "difference" else ""
            parts.append(f"**{claim}** ({_link(declaration, str(name))}{unit})")
            parts.append(pipe_table(_claim(own.to_dict("records"), len(declaration.tables[str(name)].seeds))))
    return "\n\n".join(parts) + "\n"


def _counts(declaration: Declaration, verdicts: pd.DataFrame) -> str:
    counts = pd.crosstab(verdicts["table"], verdicts["test_verdict"]).reindex(verdicts["table"].unique())
    titles = [_link(declaration, str(name)) for name in counts.index]
    columns = [
        Column(verdict.value, [*map(str, counts[verdict]), str(counts[verdict].sum())])
        for verdict in Verdict
        if verdict in counts
    ]
    return pipe_table(Block("", [*titles, "all"], columns), corner="claims of")


def _link(declaration: Declaration, name: str) -> str:
    table = declaration.tables[name]
    return f"[{table.number or table.title}]({name}.md)"


def _claim(lines: list[dict[str, Any]], of: int) -> Block:
    columns = [
        Column("theirs", [theirs(line) for line in lines]),
        Column("ours, test", [ours(line, "test", of) for line in lines]),
        Column("ours, train", [ours(line, "train", of) for line in lines]),
        Column("verdict on train", [line["train_verdict"] for line in lines]),
    ]
    if any(line["explained"] for line in lines):
        columns.append(Column("what explains it", [line["explained"] or NOTHING for line in lines]))
    return Block("", [line["row"] for line in lines], columns)
