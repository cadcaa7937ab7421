"""Which published numbers our runs reproduce."""

import re

import pandas as pd
import pytest

from reporting.records.statistics import Estimate
from reporting.verdicts import Verdict, decide, decide_claim
from reporting.verdicts.outcomes import in_one_sentence
from tests.reporting.synthetic_records import keep_records, make_record
from tests.reporting.synthetic_results import (
    SEEDS,
    cells_of,
    line,
    loaded,
    rebuild,
    short_record,
    short_records,
    small_records,
)

LEARNED = "SharMiX learned (1.25, 1.50)"


def verdicts_of(results):
    return pd.read_csv(results / "tables" / "verdicts.csv")


def test_the_rule():
    cases = [
        (0.50, 0.40, 0.60, False, Verdict.REPRODUCES),
        (0.6004, 0.40, 0.60, False, Verdict.REPRODUCES),  # within the paper's rounding
        (0.3996, 0.40, 0.60, False, Verdict.REPRODUCES),
        (0.61, 0.40, 0.60, False, Verdict.FAILS),
        (0.61, 0.40, 0.60, True, Verdict.DIRECTION),
        (-0.61, -0.60, -0.40, True, Verdict.DIRECTION),
        (-0.61, 0.40, 0.60, True, Verdict.FAILS),
        (0.61, -0.10, 0.60, True, Verdict.FAILS),
        (0.61, 0.0, 0.60, True, Verdict.FAILS),  # 0 is not excluded
        (0.50, 0.40, 0.65, False, Verdict.BY_WIDTH),
        (0.50, -0.10, 0.60, True, Verdict.BY_WIDTH),  # 0 is not excluded
        (0.50, 0.10, 0.90, True, Verdict.REPRODUCES),
    ]
    wrong = [
        (published, low, high, difference, found)
        for published, low, high, difference, verdict in cases
        if (found := decide(published, Estimate((low + high) / 2, 0.1, 5, low, high), 0.0005, difference, narrow=0.22))
        is not verdict
    ]
    assert not wrong
    verdicts = [decide(0.5, Estimate(0.5, 0.1, seeds, 0.4, 0.6), 0.0005, False, narrow=0.22) for seeds in (1, 2, 3)]
    assert verdicts == [Verdict.TOO_FEW_SEEDS, Verdict.TOO_FEW_SEEDS, Verdict.REPRODUCES]


def test_a_sentence_counts_the_outcomes_that_there_are():
    decided = [Verdict.FAILS, Verdict.FAILS, Verdict.REPRODUCES]
    recipe = "under the recipe that we chose where the paper is silent"
    begins = f"published numbers that we checked, 2 do not reproduce {recipe}"
    assert in_one_sentence(decided) == f"Of 3 {begins} and 1 does"
    wide = "1 is not shown, because our interval is wide"
    assert in_one_sentence([*decided, Verdict.BY_WIDTH]) == f"Of 4 {begins}, 1 does, and {wide}"
    assert in_one_sentence([*decided, Verdict.TOO_FEW_SEEDS]) == f"Of 4 {begins}, 1 does, and 1 is open"


def test_verdicts_follow_the_rule_and_show_their_numbers(small):
    verdicts = verdicts_of(rebuild(small).parent)
    wins = line(verdicts, claim="SharMiX wins", row=LEARNED)
    assert wins["published"] == pytest.approx(1.7)
    assert wins["unit"] == "percentage points"
    assert wins["test_mean"] == pytest.approx(0.5)
    # 1.7 lies within +0.50 ± 2.776 √((0.6² + 0.7²)/5) = [−0.64, +1.64], up to its rounding of 0.1
    assert (wins["test_low"], wins["test_high"]) == pytest.approx((-0.6447, 1.6447), abs=1e-4)
    assert (wins["verdict"], wins["train_verdict"]) == ("not shown", "reproduces")
    assert line(verdicts, claim="SharMiX is dense", row=LEARNED)["verdict"] == "does not reproduce"
    dense = line(verdicts, claim="SharMiX is dense", row="softmax")
    assert (dense["verdict"], dense["unit"]) == ("reproduces", "fraction")
    accurate = line(verdicts, claim="SharMiX is accurate", row=LEARNED)
    assert (accurate["verdict"], accurate["train_verdict"]) == ("does not reproduce", "reproduces")
    page = (small / "tables" / "verdicts.md").read_text("utf-8")
    assert re.search(r"\| +0\.910 +\| +0\.805 \[0\.798, 0\.812\] +\|", page)
    assert re.search(r"\| +\+1\.70 +\| +\+0\.50 \[−0\.64, \+1\.64\] +\|", page)


@pytest.mark.parametrize(
    ("claim", "accuracy", "sparsity", "measured", "verdict"),
    [  # the paper's numbers, and ours, which all seeds have alike; half of the last printed digit is 0.0005
        ("SharMiX is dense", 0.9, 0.200, 0.2003, "reproduces"),
        ("SharMiX is dense", 0.9, 0.200, 0.2007, "does not reproduce"),
        ("SharMiX is dense", 0.9, "{low: 0.21, high: 0.25}", 0.2097, "reproduces"),
        ("SharMiX is dense", 0.9, "{low: 0.21, high: 0.25}", 0.2093, "does not reproduce"),
        ("SharMiX wins", 0.806, 0.0, 0.8052, "reproduces"),  # theirs +0.6 points, ours +0.52
        ("SharMiX wins", 0.806, 0.0, 0.8048, "direction only"),
    ],
)
def test_a_number_that_could_round_to_the_printed_one_reproduces(small, claim, accuracy, sparsity, measured, verdict):
    softmax, learned = "softmax: {accuracy: 0.8, sparsity: 0}", f"{{accuracy: {accuracy}, sparsity: {sparsity}}}"
    (small / "published" / "paper.yaml").write_text(f"table_of_paper: {{{softmax}, sharmix: {learned}}}", "utf-8")
    test = {"accuracy" if claim == "SharMiX wins" else "sparsity": measured}
    own = [make_record("sharmix_learned", seed, test=test, q=1.25, r=1.5) for seed in SEEDS]
    keep_records(small, own + [make_record("softmax", seed, test={"accuracy": 0.8}) for seed in SEEDS])
    kept = loaded(small, allow_missing_seeds=True)
    (asked,) = (one for one in kept.declaration.tables["small"].claims if one.text == claim)
    assert decide_claim(kept, "small", asked, "learned")["verdict"] == verdict


def test_a_range_that_the_paper_prints_widens_its_difference(small):
    paper = small / "published" / "paper.yaml"
    paper.write_text(paper.read_text("utf-8").replace("[0.910, 0.006]", "{low: 0.80, high: 0.95}"), "utf-8")
    wins = line(verdicts_of(rebuild(small).parent), claim="SharMiX wins", row=LEARNED)  # theirs −9.3 to 5.7, ours 0.5
    assert wins["half_width"] == pytest.approx(7.5)
    assert wins["verdict"] == "reproduces"  # 0.5 lies in the range, and all our seeds have it


def test_an_interval_of_a_fraction_ends_at_0(small):
    softmax = [
        make_record("softmax", seed, test={"accuracy": 0.8, "sparsity": sparsity})
        for seed, sparsity in zip(SEEDS, (0.0, 0.0, 0.0, 0.025, 0.035), strict=True)
    ]
    keep_records(small, [r for r in small_records() if r["config"]["activation"]["name"] != "softmax"] + softmax)
    dense = line(verdicts_of(rebuild(small).parent), claim="SharMiX is dense", row="softmax")
    assert dense["test_low"] == 0
    assert dense["verdict"] == "reproduces"  # without this end the interval would be too wide


def test_a_difference_to_several_rows_needs_all_of_them_for_each_seed(small):
    declaration = small / "tables.yaml"
    text = declaration.read_text("utf-8").replace("against: [softmax]", "against: [softmax, extra]")
    declaration.write_text(text.replace("alpha: 1.5}}", "alpha: 1.5}, published: softmax}"), "utf-8")
    kept = [r for r in small_records() if (r["config"]["activation"]["name"], r["seed"]) != ("entmax", 5)]
    keep_records(small, kept)
    rebuild(small, allow_missing_seeds=True)
    assert line(verdicts_of(small), claim="SharMiX wins", row=LEARNED)["test_seeds"] == 4


def test_verdicts_wait_for_the_papers_epoch(built_short, short):
    def decided(results):
        return verdicts_of(results).set_index("claim")["verdict"].to_dict()

    assert decided(built_short) == {
        "Softmax is accurate": "open: epoch not reached",
        "Sparsemax is worse": "open: epoch not reached",
        "Softmax starts well": "does not reproduce",
        "Softmax ends well": "open: epoch not reached",
    }
    page = (built_short / "tables" / "verdicts.md").read_text("utf-8")
    assert "is **open**, too, where" in page
    assert re.search(r"\| all +\| +1 \| +3 \|", page)  # three of two tables wait

    keep_records(short, list(short_records(epochs=6)), "images")
    rebuild(short)
    verdicts = decided(short)
    assert verdicts["Softmax is accurate"] == verdicts["Softmax ends well"] == "reproduces"
    assert verdicts["Sparsemax is worse"] == "open: epoch not reached"  # its own runs have four epochs still

    of_softmax = [one for one in short_records() if one["config"]["activation"]["name"] == "softmax"]
    keep_records(short, of_softmax + [short_record("sparsemax", seed, 6, 0.45) for seed in (1, 2, 3)], "images")
    rebuild(short)
    assert decided(short)["Sparsemax is worse"] == "open: epoch not reached"  # softmax's have


def test_a_row_without_any_run_stays_open_when_allowed(small):
    keep_records(small, [r for r in small_records() if r["config"]["activation"]["name"] != "sharmix_learned"])
    rebuild(small, allow_missing_seeds=True)
    verdicts = verdicts_of(small)
    assert set(verdicts[verdicts["row"] == LEARNED]["verdict"]) == {"open: too few seeds"}
    learned = cells_of(small, "small")[LEARNED]
    on_test = "On test; accuracy − softmax in percentage points"
    assert {title for title, text in learned.items() if text != "–"} == {
        f"{on_test} | {metric}, theirs" for metric in ("accuracy", "sparsity", "− softmax")
    }
