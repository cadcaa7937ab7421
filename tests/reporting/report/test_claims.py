"""The verdicts on a page, beside those that `python -m reporting tables` keeps."""

import pandas as pd
import pytest

from reporting.report.claims import decided_claims
from tests.reporting.synthetic_results import RESULTS, loaded, write_short


@pytest.fixture(scope="module")
def claims(kept):
    return decided_claims(kept)


@pytest.mark.medium
def test_the_verdicts_are_those_of_the_tables(claims):
    kept = pd.read_csv(RESULTS / "tables/verdicts.csv")
    assert [(one.line["claim"], one.line["row"], one.line["verdict"]) for one in claims] == [
        (line.claim, line.row, line.verdict) for line in kept.itertuples()
    ]
    for one, line in zip(claims, kept.itertuples(), strict=True):
        assert one.numbers["published"] == line.published
        assert one.numbers["mean"] == getattr(line, f"{line.split}_mean")


@pytest.mark.medium
def test_a_verdict_names_the_runs_that_it_rests_on(claims, kept):
    (beats,) = [one for one in claims if one.line["claim"].startswith("SharMiX (1.25, 1.50) is ahead")]
    learned, sparsemax = (kept.selections["table1"].rows[row].records[0] for row in ("learned_1.25_1.50", "sparsemax"))
    seeds = kept.declaration.tables["table1"].seeds
    groups = (f"airline/{record.run_id}" for record in (learned, sparsemax))
    assert beats.runs == tuple([f"{group}/seed-{seed}" for seed in seeds] for group in groups)
    assert (beats.line["metric"], beats.line["kind"], beats.published) == ("accuracy", "difference", "+0.20")


def test_a_number_of_another_epoch_never_stands_beside_a_claim(tmp_path):
    short = loaded(write_short(tmp_path))
    claims = decided_claims(short)
    (late,) = [one for one in claims if one.line["claim"] == "Softmax ends well"]
    assert (late.ours, late.outcome, late.numbers["mean"]) == ("not reached", "open", None)
    (early,) = [one for one in claims if one.line["claim"] == "Softmax starts well"]
    assert early.epoch == 2
    assert early.numbers["mean"] is not None
