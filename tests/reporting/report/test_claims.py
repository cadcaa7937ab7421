"""The verdicts on a page, beside those that `python -m reporting tables` keeps."""

import pandas as pd
import pytest

from reporting.report.claims import decided_claims
from tests.reporting.synthetic_results import RESULTS, loaded, write_short


@pytest.fixture(scope="module")
def claims(kept):
    return decided_claims(kept)


def test_the_verdicts_are_those_of_the_tables(claims):
    kept = pd.read_csv(RESULTS / "tables/verdicts.csv")
    assert [(one.claim, one.row, one.verdict) for one in claims] == [
        (line.claim, line.row, line.test_verdict) for line in kept.itertuples()
    ]
    for one, line in zip(claims, kept.itertuples(), strict=True):
        assert one.numbers["published"] == line.published
        assert one.numbers["mean"] == line.test_mean


def test_a_verdict_names_the_runs_that_it_rests_on(claims, kept):
    (beats,) = [one for one in claims if one.claim.startswith("SharMiX (1.25, 1.50) is best")]
    learned, sparsemax = (kept.selections["table1"].rows[row].records[0] for row in ("learned_1.25_1.50", "sparsemax"))
    assert beats.runs == ([f"airline/{learned.run_id}"], [f"airline/{sparsemax.run_id}"])
    assert (beats.column, beats.difference, beats.published) == ("test/accuracy", True, "+0.20 points")


def test_a_number_of_another_epoch_never_stands_beside_a_claim(tmp_path):
    claims = decided_claims(loaded(write_short(tmp_path)))
    (late,) = [one for one in claims if one.claim == "Softmax ends well"]
    assert (late.ours, late.outcome, late.numbers["mean"]) == ("not reached", "open", None)
    (early,) = [one for one in claims if one.claim == "Softmax starts well"]
    assert early.epoch == 2
    assert early.numbers["mean"] is not None
