"""The verdicts on the SharMiX paper's claims in short: one sentence, and the answers to readers' questions."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from reporting.records.declaration import VERDICTS, Declaration, load_declaration
from reporting.text.number_formats import NOTHING
from reporting.verdicts import Verdict
from reporting.verdicts.outcomes import headline, in_one_sentence, our_mean, outcome_of, theirs

SCORES = ("accuracy", "macro_f1")
ANSWERS = {  # by outcome: a mark and a word
    "reproduces": ("✓", "yes"),
    "direction only": ("✓", "yes"),
    "does not reproduce": ("✗", "no"),
    "open": ("?", "open"),
}


class Answer(NamedTuple):
    """A declared question with its answer."""

    question: str
    outcome: str  # a key of `reporting.verdicts.outcomes.OUTCOMES`
    mark: str
    word: str
    theirs: str
    ours: str
    number: str  # says what the two numbers measure
    reason: str
    verdict: Mapping[str, Any] | None  # the line that decides it; None where our runs do not measure the claim


def answers(declaration: Declaration, verdicts: Iterable[Mapping[str, Any]]) -> list[Answer]:
    """Answer the declared questions from the lines that `reporting.verdicts.decide_claim` gives for all tables."""
    lines: dict[Any, Mapping[str, Any]] = {(line["table"], line["claim"], line["row"]): line for line in verdicts}
    answered = []
    for asked in declaration.questions:
        label = declaration.tables[asked.table].labels()[str(asked.row)] if asked.table else None
        line = lines.get((asked.table, asked.claim, label))
        outcome = outcome_of(line["test_verdict"]) if line else "open"
        unit = " points" if line and line["kind"] == "difference" else ""
        numbers = [show(line) + unit if line else NOTHING for show in (theirs, our_mean)]
        answered.append(Answer(asked.text, outcome, *ANSWERS[outcome], *numbers, asked.number, asked.reason, line))
    return answered


def summarise_verdicts(root: Path, to_root: str) -> str:
    """How many published numbers were checked, with the count of each outcome and of each explanation.

    Then, for each table, how many of its published test scores are nearer to our training split than to our test split.
    """
    tables = load_declaration(root / "conf" / "reporting").tables
    lines = _read(root)
    failed = lines[lines["test_verdict"] == Verdict.FAILS]
    explained = ", ".join(f"{text} {count}" for text, count in failed["explained"].value_counts().items())
    scores = lines[lines["metric"].isin(SCORES) & (lines["kind"] == "level")]
    nearer = ", ".join(
        f"{(splits == 'train').sum()} of {len(splits)} in {tables[str(name)].number}"
        for name, splits in scores.groupby("table")["nearer_split"]
    )
    return (
        f"{headline(lines['test_verdict'])} ([each number]({to_root}results/tables/verdicts.md)). What explains the "
        f"{len(failed)}: {explained} ([the terms]({to_root}docs/studies/forensics.md)).\n\n"
        "Some published accuracies and macro-F1 scores are nearer to our training split than to test, though "
        f"the paper says that they are of test: {nearer}."
    )


def answer_questions(root: Path, to_root: str) -> str:
    """The declared questions, each with its answer and the reason; then how many published numbers reproduce."""
    declaration, verdicts = load_declaration(root / "conf" / "reporting"), _read(root)
    shown = ""
    for one in answers(declaration, verdicts.to_dict("records")):
        numbers = f" ({one.number}: theirs {one.theirs}, ours {one.ours})" if one.verdict else ""
        shown += f"- {one.mark} **{one.question}** {one.word.capitalize()}{numbers}. {one.reason}\n"
    claims = f"[each number]({to_root}results/tables/verdicts.md)"
    origin = f"[where the published numbers come from]({to_root}docs/studies/forensics.md)"
    return f"{shown}\n{in_one_sentence(verdicts['test_verdict'])}: {claims}, and {origin}."


def _read(root: Path) -> pd.DataFrame:
    return pd.read_csv(root / "results" / "tables" / f"{VERDICTS}.csv")
