"""docs/findings.md is short, links each answer to its evidence, and types no measurement."""

import re

import pytest

from tests.docs.pages import DOCS

PAGE = (DOCS / "findings.md").read_text("utf-8")
WRITTEN_BY_HAND = re.sub(r"<!-- (.+?): begin.*?<!-- \1: end -->", "", PAGE, flags=re.DOTALL)
SECTIONS = dict(re.findall(r"^## (.+)\n\n((?:(?!## ).*\n)+)", WRITTEN_BY_HAND, re.MULTILINE))
NUMBER = re.compile(r"(?<![\w.])-?\d+\.\d+(?![\w.-]*-(?:ReLU|entmax))")  # 1.5-ReLU is a name
WORDS = 1000


def test_the_page_is_short():
    assert len(SECTIONS) > 5
    assert len(PAGE.split()) <= WORDS


@pytest.mark.parametrize("title", SECTIONS)
def test_a_section_links_to_its_evidence_and_types_no_measurement(title):
    text = SECTIONS[title]
    assert re.search(r"\]\((\.\./results/|studies|experiments/)", text)
    typed = NUMBER.findall(re.sub(r"\]\([^)]*\)|[τα] = [\d.]+|\(1.50, 1.50\)", "]", text))  # these are settings
    assert typed == []
