"""docs/errata.md: each case names what shows it, and every test, file and section that the page names exists."""

import re

import pytest

from tests.docs.pages import DOCS, ROOT, names_of_tests

PAGE = DOCS / "errata.md"
TEXT = PAGE.read_text("utf-8")
CASES = re.findall(r"^- (\*\*.*?)(?=\n\n|\n- |\n#|\Z)", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.split("**")[1])
def test_each_case_ends_with_what_shows_it(case):
    shown_by = re.split(r"Shown\s+by", case)[1]
    assert re.search(r"`test_\w+`|\]\(\.\./results/|reading|the same test", shown_by)


def test_no_case_is_lost():
    assert len(CASES) == 18


def test_every_named_test_exists():
    named = set(re.findall(r"`(test_\w+)`", TEXT))
    assert len(named) >= 10
    assert named <= names_of_tests("tests/sharmix")


def test_every_test_of_the_errata_is_named():
    assert set(
        re.findall(r"^def (test_\w+)", (ROOT / "tests/sharmix/test_errata.py").read_text(), re.MULTILINE)
    ) <= set(re.findall(r"`(test_\w+)`", TEXT))
