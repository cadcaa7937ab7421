"""The verdicts on the SharMiX paper's claims in short: one sentence, and a table with a line for each claim."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from reporting.declaration import VERDICTS, load_declaration
from reporting.number_formats import NOTHING
from reporting.outcomes import OUTCOMES, in_one_sentence, outcome_of, why_open
from reporting.pages.wording import span
from reporting.verdicts import Verdict

SCORES = ("accuracy", "macro_f1")
MARKS = {"reproduces": "✓", "direction only": "✓", "does not reproduce": "✗", "open": "?"}


def summarise_verdicts(root: Path, to_root: str) -> str:
    """How many published numbers were checked, with the count of each outcome and of each explanation."""
    lines = _read(root)
    verdicts = lines["test_verdict"]
    reasons = why_open(verdicts)
    failed = lines[verdicts == Verdict.FAILS]
    explained = ", ".join(f"{text} {count}" for text, count in failed["explained"].value_counts().items())
    return (
        f"**{in_one_sentence(verdicts)}**{f': {reasons}' if reasons else ''} "
        f"([each number]({to_root}results/tables/verdicts.md)). What explains the {len(failed)}: {explained}."
    )


def list_claims(root: Path, to_root: str) -> str:
    """A table for each table of the paper: claim, theirs, ours, verdict, seeds; then the split nearer to the paper."""
    declaration = load_declaration(root / "conf" / "reporting")
    verdicts = _read(root)
    texts = []
    for name, lines in verdicts.groupby("table", sort=False):
        title = declaration.tables[str(name)].heading()
        claims = pd.DataFrame([_claim(claim, of) for claim, of in lines.groupby("claim", sort=False)])
        table = claims.to_markdown(index=False, disable_numparse=True)
        texts += [f"**[{title}]({to_root}results/tables/{name}.md)**", table]
    return "\n\n".join([*texts, _nearer_split(verdicts)])


def answer_questions(root: Path, to_root: str) -> str:
    """A table with a line for each declared question: its mark, theirs, ours and the reason."""
    verdicts = _read(root).set_index(["table", "claim", "row"])
    declaration = load_declaration(root / "conf" / "reporting")
    lines = []
    for question in declaration.questions:
        mark, theirs, ours = MARKS["open"], NOTHING, NOTHING
        if question.table is not None:
            label = declaration.tables[question.table].labels()[str(question.row)]
            found = verdicts.loc[[(question.table, question.claim, label)]]
            mark = MARKS[outcome_of(found["test_verdict"].iloc[0])]
            shown = _claim(question.claim, found)
            theirs, ours = shown["theirs"], shown["ours"]
        asked = f"{mark} {question.text}"
        lines.append({"question": asked, "theirs": theirs, "ours": ours, "reason": question.reason})
    table = pd.DataFrame(lines).to_markdown(index=False, disable_numparse=True)
    claims = f"[claim by claim]({to_root}docs/findings.md#claim-by-claim)"
    origin = f"[where the published numbers come from]({to_root}docs/studies/forensics.md)"
    return f"{table}\n\n✓ our runs show it, ✗ they do not, ? open: {claims}; {origin}."


def _nearer_split(verdicts: pd.DataFrame) -> str:
    """The number of published test scores that are nearer to our scores on the training split."""
    scores = verdicts[verdicts["metric"].isin(SCORES) & (verdicts["kind"] == "level")]
    decided = scores[~scores["test_verdict"].isin(OUTCOMES["open"])]
    nearer = int((decided["nearer_split"] == "train").sum())
    return (
        f"Of the {len(decided)} published accuracies and macro-F1 scores that are decided, {nearer} are nearer to our "
        "training split than to our test split, though the paper says that they are of test."
    )


def _read(root: Path) -> pd.DataFrame:
    return pd.read_csv(root / "results" / "tables" / f"{VERDICTS}.csv")


def _claim(claim: object, lines: pd.DataFrame) -> dict[str, str]:
    difference = lines["kind"].eq("difference").all()
    decimals, sign, unit = (2, "+", " points") if difference else (3, "-", "")
    theirs, ours = lines["published"], lines["test_mean"].dropna()
    seeds = lines["test_seeds"].max()
    return {
        "claim": str(claim),
        "theirs": span([*theirs - lines["half_width"], *theirs + lines["half_width"]], decimals, sign) + unit,
        "ours": span(ours, decimals, sign) + unit if len(ours) else NOTHING,
        "verdict": _verdict(lines["test_verdict"]),
        "what explains it": ", ".join(dict.fromkeys(lines["explained"].dropna())) or NOTHING,
        "seeds": str(seeds) if seeds else NOTHING,
    }


def _verdict(verdicts: Iterable[str]) -> str:
    """One verdict for all rows of a claim; if verdicts differ, the number of rows with each verdict."""
    counts = Counter(verdicts)
    if len(counts) == 1:
        return next(iter(counts))
    return "; ".join(f"{one}: {count} of {counts.total()}" for one, count in counts.items())
