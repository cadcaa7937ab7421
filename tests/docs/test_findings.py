"""docs/findings.md: every number of its prose stands in a table or in records that the same paragraph links to.

The page's tables are written by `python -m reporting pages`, and are no prose.
"""

import json
import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import DOCS

PAGE = DOCS / "findings.md"
WRITTEN_BY_HAND = re.sub(r"<!-- (.+?): begin.*?<!-- \1: end -->", "", PAGE.read_text("utf-8"), flags=re.DOTALL)
PROSE = WRITTEN_BY_HAND.partition("## Does sparsity follow the class distribution?")[2]
PARAGRAPHS = [text for text in re.split(r"\n\n|\n(?= *- )", PROSE) if re.search(r"\d\.\d", text)]
LINK = re.compile(r"\]\((\.\./[^)]+\.(?:md|jsonl))\)")
# Names such as 1.5-ReLU are no measurements.
NUMBER = re.compile(r"(?<![\w.])(-?\d+(?:\.\d+)?)(\s+%)?(?![\w.-]*-(?:ReLU|entmax))")
GIVEN = {"1.5", "1.25", "1.50"}  # orders that runs start from
# Columns of the curves that the page quotes: of any epoch, and those quoted only at the epoch that a run reports.
QUOTED = re.compile(r"q|r|tau|test/sparsity|dev/(bleu|empty_preferred|unfinished)")
REPORTED = re.compile(r"test/(accuracy|bleu|chrf)|dev/(sparsity|support_to_(4|256))")
SETTINGS = {"1.01", "0.02"}  # the bound of q, and a sparsity that the text compares with


def numbers_in(paragraph: str) -> list[tuple[str, bool]]:
    """The numbers with decimals, and those in per cent."""
    text = re.sub(r"\]\([^)]*\)", "]", paragraph).replace("−", "-")
    return [(digits, bool(per_cent)) for digits, per_cent in NUMBER.findall(text) if "." in digits or per_cent]


def measured_in(paragraph: str) -> set[float]:
    """Every number of the linked tables and records."""
    found: set[float] = set()
    for link in LINK.findall(paragraph):
        file = PAGE.parent / link
        if file.suffix == ".jsonl":
            found |= curves_in(file)
        else:
            text = file.with_suffix(".csv").read_text("utf-8")
            found |= {float(number) for number in re.findall(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?", text)}
    return found


@cache
def curves_in(records: Path) -> set[float]:
    """What records hold of the quantities that the page quotes; of all their numbers, nearly any would be one."""
    return {
        value
        for record in map(json.loads, records.read_text("utf-8").splitlines())
        for row in record["curves"]
        for column, value in row.items()
        if QUOTED.fullmatch(column) or (row["epoch"] == record["epoch"] and REPORTED.fullmatch(column))
    }


def test_the_prose_is_found():
    assert len(PARAGRAPHS) > 20


@pytest.mark.parametrize("paragraph", PARAGRAPHS, ids=lambda text: re.sub(r"\W+", " ", text)[:40].strip())
def test_the_numbers_stand_where_the_paragraph_says(paragraph):
    measured = measured_in(paragraph)
    missing = [
        digits
        for digits, per_cent in numbers_in(paragraph)
        if digits not in GIVEN | SETTINGS and not is_among(digits, per_cent, measured)
    ]
    assert not missing


def is_among(digits: str, per_cent: bool, measured: set[float]) -> bool:
    decimals = len(digits.partition(".")[2])
    return any(f"{100 * value if per_cent else value:.{decimals}f}" == digits for value in measured)
