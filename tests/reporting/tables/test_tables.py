"""The tables: published and measured numbers side by side."""

import pandas as pd

from reporting.tables import rebuild_tables
from tests.reporting.synthetic_records import keep_records, make_record
from tests.reporting.synthetic_results import (
    SMALL,
    WOBBLE,
    cells_of,
    line,
    loaded,
    rebuild,
    short_record,
    small_records,
)

LEARNED = "SharMiX learned (1.25, 1.50)"


def test_one_block_has_theirs_and_ours_and_only_a_difference_that_holm_leaves_is_bold(small):
    rebuild(small)
    test, train = "On test; accuracy − softmax in percentage points", "On train, ours"
    learned, entmax = (cells_of(small, "small")[row] for row in (LEARNED, "entmax (α = 1.5)"))
    assert learned == {
        f"{test} | accuracy, theirs": "0.910 ± 0.006",
        f"{test} | accuracy, ours": "0.805 ± 0.003",
        f"{test} | sparsity, theirs": "0.000",
        f"{test} | sparsity, ours": "0.200 ± 0.000",
        f"{test} | − softmax, theirs": "+1.7",
        f"{test} | − softmax, ours [95%]": "**+0.50 [+0.50, +0.50]**",
        f"{train} | accuracy": "0.910 ± 0.003",
        f"{train} | sparsity": "0.210 ± 0.000",
    }
    assert entmax[f"{test} | − softmax, theirs"] == "–"
    assert entmax[f"{test} | − softmax, ours [95%]"] == "+0.00 [+0.00, +0.00]"


def test_a_difference_below_0_is_bold_too(small):
    others = [r for r in small_records() if r["config"]["activation"]["name"] != "entmax"]
    entmax = [make_record("entmax", s, test={"accuracy": 0.79 + more}, alpha=1.5) for s, more in WOBBLE.items()]
    keep_records(small, others + entmax)
    cells = cells_of(rebuild(small).parent, "small")["entmax (α = 1.5)"]
    column = "On test; accuracy − softmax in percentage points | − softmax, ours [95%]"
    assert cells[column] == "**−1.00 [−1.00, −1.00]**"


def test_the_csv_names_the_unit_and_the_source_of_each_number(small):
    frame = pd.read_csv(rebuild(small) / "small.csv")
    assert "epoch" not in frame  # no number has one
    ours = line(frame, row=LEARNED, kind="difference to softmax", source="ours")
    assert (ours["unit"], ours["seeds"], round(ours["mean"], 9)) == ("percentage points", 5, 0.5)
    theirs = line(frame, row=LEARNED, kind="level", metric="accuracy", split="test", source="published")
    assert (theirs["unit"], theirs["mean"], theirs["std"]) == ("fraction", 0.91, 0.006)


def test_a_column_without_numbers_is_left_out(small):
    without_claims = SMALL.partition("    claims:")[0] + "figures: {panels: []}"
    (small / "tables.yaml").write_text(without_claims.replace(", published: softmax", ""), "utf-8")
    titles = cells_of(rebuild(small).parent, "small")[LEARNED]
    assert "On test; accuracy − softmax in percentage points | − softmax, ours [95%]" in titles
    assert not any("− softmax, theirs" in title for title in titles)


# Runs that are shorter than the paper's


def test_an_epoch_that_no_run_has_reached_has_no_number_of_another(built_short):
    heading = "Accuracy on test, epoch 6; accuracy − softmax in percentage points"
    assert cells_of(built_short, "final")["sparsemax"] == {
        f"{heading} | theirs": "0.430",
        f"{heading} | ours": "not reached",
        f"{heading} | − softmax, theirs": "−7.0",
    }
    assert cells_of(built_short, "dynamics")["softmax"] == {
        "Accuracy on test by epoch | epoch 2, theirs": "0.300",
        "Accuracy on test by epoch | epoch 2, ours": "0.478 ± 0.002",
        "Accuracy on test by epoch | epoch 6, theirs": "0.500",
        "Accuracy on test by epoch | epoch 6, ours": "not reached",
        "Accuracy on train, epoch 6 | theirs": "0.900",
        "Accuracy on train, epoch 6 | ours": "not reached",
    }


def test_tables_without_records_are_left_out_and_said_so(short):
    assert rebuild_tables(loaded(short))[1] == []
    (short / "records" / "images_lt.jsonl").unlink()
    files, (notice,) = rebuild_tables(loaded(short))
    assert not any("tail" in file.name for file in files)
    assert notice.startswith("left out: tail: ")
    assert "python -m reporting collect images_lt" in notice


def test_a_mean_over_fewer_seeds_than_its_row_says_so(short):
    records = [
        short_record("softmax", 1, 6, 0.5),
        *(short_record("softmax", seed, 4, 0.5) for seed in (2, 3)),
        *(short_record("sparsemax", seed, 6, 0.4) for seed in (1, 2, 3)),
    ]
    keep_records(short, records, "images")
    rebuild(short)
    row = cells_of(short, "dynamics")["softmax"]
    assert row["Accuracy on test by epoch | epoch 6, ours"] == "0.500 (1 of 3 seeds)"
    assert row["Accuracy on test by epoch | epoch 2, ours"] == "0.472 ± 0.005"
    verdicts = pd.read_csv(short / "tables" / "verdicts.csv").set_index("claim")["verdict"]
    assert verdicts["Softmax ends well"] == "open: epoch not reached"


def test_a_row_with_fewer_seeds_is_compared_by_its_own(small):
    row = "{select: {name: entmax, alpha: 1.5}"
    (small / "tables.yaml").write_text(SMALL.replace(row, f"{row}, seeds: [2]"), "utf-8")
    others = [r for r in small_records() if r["config"]["activation"]["name"] != "entmax"]
    # Softmax has 0.798 with this seed, and 0.8 in the mean over all.
    keep_records(small, [*others, make_record("entmax", 2, test={"accuracy": 0.808}, alpha=1.5)])
    rebuild(small)
    cells = cells_of(small, "small")["entmax (α = 1.5)"]
    assert cells["On test; accuracy − softmax in percentage points | accuracy, ours"] == "0.808"
    assert cells["On test; accuracy − softmax in percentage points | − softmax, ours [95%]"] == "+1.00"


def test_a_difference_over_fewer_seeds_than_its_row_says_so(small):
    records = [r for r in small_records() if r["seed"] < 4 or r["config"]["activation"]["name"] != "softmax"]
    keep_records(small, records)
    rebuild(small, allow_missing_seeds=True)
    learned, softmax = (cells_of(small, "small")[row] for row in (LEARNED, "softmax"))
    assert "Missing runs: softmax, seed 4, 5." in (small / "tables" / "small.md").read_text("utf-8")
    column = "On test; accuracy − softmax in percentage points | − softmax, ours [95%]"
    assert learned[column] == "**+0.50 [+0.50, +0.50] (3 of 5 seeds)**"
    assert softmax[column] == "–"
    verdicts = (small / "tables" / "verdicts.md").read_text("utf-8")
    assert "+0.50 points" not in verdicts
    assert "+0.50 [−0.64, +1.64] (3 of 5 seeds)" in verdicts
    assert verdicts.count("(3 of 5 seeds)") == 4  # the difference, and the level of softmax, each on test and on train
