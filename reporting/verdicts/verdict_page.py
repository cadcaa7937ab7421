"""The page of verdicts: how many claims reproduce, then every claim, sorted by its verdict."""

from typing import Any

import pandas as pd

from reporting.records.declaration import Declaration
from reporting.text.columns import Block, Column
from reporting.text.markdown import paragraph, pipe_table
from reporting.verdicts import Verdict, rules
from reporting.verdicts.outcomes import in_one_sentence, near_when, ours, theirs

NOT_COUNTED = """\
Each published number is counted once: two rows of Table 3 are also rows of Table 1. A difference between a row and \
another, or the mean of others, counts beside their own numbers; where the paper does not print it, it is that of the \
printed numbers. Zeros of softmax are not counted, because softmax has no others. Table 6 is not counted, because \
times and memory belong to a machine ([ours](../benchmarks/table6.md)), and neither is Figure 2, which needs \
ImageNet."""


def verdict_page(declaration: Declaration, verdicts: pd.DataFrame) -> str:
    """The page in Markdown."""
    parts = [
        "# Verdicts on the papers' claims",
        paragraph(f"**{in_one_sentence(verdicts['verdict'])}**."),
        _counts(declaration, verdicts),
        *map(paragraph, [*rules(declaration), NOT_COUNTED]),
    ]
    for verdict in Verdict:
        lines = verdicts[verdicts["verdict"] == verdict]
        if len(lines):
            parts.append(f"## {verdict.value.capitalize()}: {len(lines)}")
        for (name, claim), own in lines.groupby(["table", "claim"], sort=False):
            unit = ", in percentage points" if own["kind"].iloc[0] == "difference" else ""
            parts.append(f"**{claim}** ({_link(declaration, str(name))}{unit})")
            parts.append(pipe_table(_claim(own.to_dict("records"), len(declaration.tables[str(name)].seeds))))
    return "\n\n".join(parts) + "\n"


def _counts(declaration: Declaration, verdicts: pd.DataFrame) -> str:
    counts = pd.crosstab(verdicts["table"], verdicts["verdict"]).reindex(verdicts["table"].unique())
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
    other = "train" if lines[0]["split"] == "test" else "test"
    columns = [
        Column("theirs", [theirs(line) for line in lines]),
        Column("ours, test", [ours(line, "test", of) for line in lines]),
        Column("ours, train", [ours(line, "train", of) for line in lines]),
        Column(f"verdict on {other}", [line[f"{other}_verdict"] for line in lines]),
    ]
    if any(line["near_when"] for line in lines):
        columns.append(Column("comes near when", [near_when(line) for line in lines]))
    return Block("", [line["row"] for line in lines], columns)
