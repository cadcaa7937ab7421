"""The verdicts on the SharMiX paper's claims in short: one sentence, and the answers to readers' questions."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from reporting.records.declaration import VERDICTS, Declaration, load_declaration
from reporting.text.number_formats import NOTHING
from reporting.verdicts import NOT_FOUND, Verdict
from reporting.verdicts.outcomes import in_one_sentence, our_mean, outcome_of, theirs

ANSWERS = {  # by outcome: a mark and a word
    "reproduces": ("✓", "yes"),
    "not shown": ("?", "not shown"),
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
        outcome = outcome_of(line["verdict"]) if line else "open"
        unit = " points" if line and line["kind"] == "difference" else ""
        numbers = [show(line) + unit if line else NOTHING for show in (theirs, our_mean)]
        answered.append(Answer(asked.text, outcome, *ANSWERS[outcome], *numbers, asked.number, asked.reason, line))
    return answered


def summarise_verdicts(root: Path, to_root: str) -> str:
    """How many published numbers were checked, with the count of each outcome, and when missed numbers come near."""
    lines = _read(root)
    failed = lines[lines["verdict"] == Verdict.FAILS]
    counts = failed["near_when"].value_counts()
    near = ", ".join(f"{counts[name]} ({name})" for name in counts.index.drop(NOT_FOUND, errors="ignore"))
    return (
        f"**{in_one_sentence(lines['verdict'])}** ([each number, and the rule]({to_root}results/tables/verdicts.md)). "
        f"Of the {len(failed)}, some come near ours under a hypothesis about how they were made: {near}. "
        f"{counts.get(NOT_FOUND, 0)} do under none of these. That a number appears does not show how it was made "
        f"([the hypotheses]({to_root}docs/studies/forensics.md))."
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
    return f"{shown}\n{in_one_sentence(verdicts['verdict'])}: {claims}, and {origin}."


def _read(root: Path) -> pd.DataFrame:
    return pd.read_csv(root / "results" / "tables" / f"{VERDICTS}.csv")
