"""Each recorded page of a benchmark is the one that its CSV gives."""

import pandas as pd
import pytest

from benchmarks import attention, language_head, maps_report, overhead, screened_words, trained_heads, vocab_parallel
from benchmarks.harness import load_settings
from experiments.identity import ROOT
from reporting.records.declaration import load_declaration

BENCHMARKS = ROOT / "results" / "benchmarks"
PAGES = {
    "attention": lambda data: attention.page(data, load_settings("attention")),
    "language_head": lambda data: language_head.page(data, load_settings("language_head")),
    "maps": lambda data: maps_report.page(data, load_settings("maps")),
    "screened_words": screened_words.page,
    "table6": lambda data: overhead.table(data, load_settings("overhead"), load_declaration().confidence),
    "trained_heads": lambda data: trained_heads.page(data, load_settings("trained_heads")),
    "vocab_parallel": lambda data: vocab_parallel.page(data, load_settings("vocab_parallel")),
}
LONG = "maps", "table6"


@pytest.mark.parametrize("name", [pytest.param(one, marks=[pytest.mark.medium] * (one in LONG)) for one in PAGES])
def test_a_recorded_page_is_rebuilt_to_the_letter(name):
    page = PAGES[name](pd.read_csv(BENCHMARKS / f"{name}.csv"))
    assert page == (BENCHMARKS / f"{name}.md").read_text(encoding="utf-8")
