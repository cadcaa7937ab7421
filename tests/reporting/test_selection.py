"""Which runs a table takes, and which runs it refuses."""

import pandas as pd
import pytest

from experiments.record import RecordError
from reporting.declaration import TableError
from reporting.tables import rebuild_tables
from tests.reporting.synthetic_records import keep_records, make_record
from tests.reporting.synthetic_results import SHORT, line, short_records, small_records

LEARNED = "SharMiX learned (1.25, 1.50)"


def change(records, **changes):
    """Update `code` or `data` of the first record that is not of the baseline."""
    records[1].update({key: records[1][key] | value for key, value in changes.items()})
    return records


def notes_of(results):
    return (results / "tables" / "small.md").read_text("utf-8")


def test_missing_seeds_are_refused_by_name_unless_allowed(small):
    absent = [("sharmix_learned", 2), ("sharmix_learned", 4), ("softmax", 5)]
    keep_records(small, [r for r in small_records() if (r["config"]["activation"]["name"], r["seed"]) not in absent])
    with pytest.raises(TableError) as error:
        rebuild_tables(small)
    assert f"small: {LEARNED}, seed 2, 4;" in str(error.value)
    assert "small: softmax, seed 5;" in str(error.value)
    assert "entmax" not in str(error.value)
    assert not (small / "tables").exists()

    rebuild_tables(small, allow_missing_seeds=True)
    table = pd.read_csv(small / "tables" / "small.csv")
    assert line(table, row=LEARNED, kind="difference to softmax")["seeds"] == 2  # 1 and 3 are the seeds that both have
    assert "Missing runs: softmax, seed 5; SharMiX" in notes_of(small)


def test_mixed_or_uncommitted_code_is_refused_by_run_unless_allowed(small):
    cases = [
        ({"digest": "0ther"}, f"digest 0ther, commit c0ffee, clean: {LEARNED} seed 1;"),
        ({"dirty": True}, f"commit c0ffee, dirty: {LEARNED} seed 1;"),
        ({"dirty": None, "commit": None}, f"commit None, state unknown: {LEARNED} seed 1;"),
    ]
    for code, message in cases:
        keep_records(small, change(list(small_records()), code=code))
        with pytest.raises(TableError) as error:
            rebuild_tables(small)
        assert message in str(error.value)
    rebuild_tables(small, allow_mixed_code=True)
    assert message.split(":")[0] in notes_of(small)


def test_another_commit_of_the_same_code_is_accepted(small):
    keep_records(small, change(list(small_records()), code={"commit": "beef"}))
    rebuild_tables(small)
    assert "commit beef" in notes_of(small)
    assert "commit c0ffee" in notes_of(small)


def test_experiments_may_be_of_different_code_but_runs_of_one_may_not(short):
    tail = make_record("softmax", 1, "images_lt", {"few_accuracy": 0.1, "calibration_error": 0.05})
    tail["code"]["digest"] = "0ther"
    keep_records(short, [tail], "images_lt")
    rebuild_tables(short)
    records = list(short_records())
    records[2]["code"]["digest"] = "0ther"
    keep_records(short, records, "images")
    with pytest.raises(TableError, match="different code"):
        rebuild_tables(short)


def test_different_splits_are_refused(small):
    keep_records(small, change(list(small_records()), data={"split_hash": "0ther"}))
    with pytest.raises(TableError, match="different splits, split_hash 0ther, 5p117"):
        rebuild_tables(small)


def test_a_row_of_several_configurations_is_refused(small):
    other = make_record("sharmix_learned", 1, q=1.25, r=1.5, objective="brier")
    keep_records(small, [*small_records(), other])
    with pytest.raises(TableError, match=r"several configurations, run_id .*brier"):
        rebuild_tables(small)


def test_settings_beside_the_activation_pick_runs_too(short):
    assert "where: {data: {augmentation: none}}" in SHORT
    (short / "tables.yaml").write_text(SHORT.replace("where: {data: {augmentation: none}}", "where: {}", 1), "utf-8")
    with pytest.raises(TableError, match="several configurations"):
        rebuild_tables(short)


def test_other_seeds_and_activations_do_not_disturb(built_small, small):
    keep_records(small, [*small_records(), make_record("softmax", 77), make_record("sparsemax", 1)])
    rebuild_tables(small)
    before, after = ((results / "tables" / "small.csv").read_bytes() for results in (built_small, small))
    assert after == before


def test_missing_records_name_the_command_that_makes_them(small):
    (small / "records" / "airline.jsonl").unlink()
    with pytest.raises(RecordError, match=r"there are no records of airline; run .*python -m reporting collect"):
        rebuild_tables(small)
