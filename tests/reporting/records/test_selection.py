"""Which runs a table takes, and which runs it refuses."""

import pytest

from reporting.records.declaration import TableError
from reporting.tables.notes import table_notes
from tests.reporting.synthetic_records import keep_records, make_record, of_other_code
from tests.reporting.synthetic_results import SMALL, loaded, short_records, small_records

LEARNED = "SharMiX learned (1.25, 1.50)"


def keep_changed(results, **changes):
    """Keep the small records with `code` or `data` of one changed: SharMiX learned, seed 1."""
    records = list(small_records())
    records[1] |= {key: records[1][key] | value for key, value in changes.items()}
    keep_records(results, records)


def declare_fewer_seeds(results, row="{select: {name: entmax, alpha: 1.5}"):
    """Let a row, that of entmax, have two of the five seeds."""
    assert row in SMALL
    (results / "tables.yaml").write_text(SMALL.replace(row, f"{row}, seeds: [4, 2]"), "utf-8")


def refusal(results):
    with pytest.raises(TableError) as error:
        loaded(results)
    return str(error.value)


def notes_of(results, **allowed):
    kept = loaded(results, **allowed)
    return "\n".join(table_notes(kept.selections["small"], kept.declaration.confidence))


def without(name, *seeds):
    """The small records without these seeds of an activation."""
    return [r for r in small_records() if r["config"]["activation"]["name"] != name or r["seed"] not in seeds]


def test_missing_seeds_are_refused_by_name_unless_allowed(small):
    keep_records(small, [record for record in without("sharmix_learned", 2, 4) if record in without("softmax", 5)])
    message = refusal(small)
    assert f"small: {LEARNED}, seed 2, 4;" in message
    assert "small: softmax, seed 5;" in message
    assert "entmax" not in message
    assert "Missing runs: softmax, seed 5; SharMiX" in notes_of(small, allow_missing_seeds=True)


def test_a_row_may_have_some_of_the_tables_seeds_alone_but_the_baseline_needs_them_all(small):
    declare_fewer_seeds(small)
    keep_records(small, without("entmax", 1, 3, 5))
    runs = loaded(small).selections["small"].rows
    assert [record.seed for record in runs["extra"].records] == [2, 4]
    assert [record.seed for record in runs["learned"].records] == [1, 2, 3, 4, 5]
    notes = notes_of(small)
    assert "over the seeds 1, 2, 3, 4, 5. These rows have fewer: entmax (α = 1.5) (4, 2)." in notes
    keep_records(small, without("entmax", 4))
    assert "small: entmax (α = 1.5), seed 4;" in refusal(small)
    declare_fewer_seeds(small, "{select: {name: softmax}")
    keep_records(small, without("softmax", 5))
    assert "small: softmax, seed 5;" in refusal(small)


def test_mixed_or_uncommitted_code_is_refused_by_run_unless_allowed(small):
    for code, named in (
        ({"files": {"run.py": "0ther"}, "digest": "0ther"}, "digest 0ther, commit c0ffee, clean"),
        ({"dirty": True}, "digest d1ge57, commit c0ffee, dirty"),
        ({"dirty": None, "commit": None}, "digest d1ge57, commit None, state unknown"),
    ):
        keep_changed(small, code=code)
        message = refusal(small)
        assert "make tables ALLOW=--allow-mixed-code" in message
        assert message.endswith(f": digest d1ge57, commit c0ffee, clean: 14 runs; {named}: {LEARNED} seed 1")
        assert named in notes_of(small, allow_mixed_code=True)


def test_experiments_may_be_of_different_code_and_runs_of_one_may_import_another_file(short):
    keep_records(short, [of_other_code(make_record("softmax", 1, "images_lt"))], "images_lt")
    loaded(short)
    first, *records = short_records()
    more = of_other_code(first, files=first["code"]["files"] | {"more.py": "c"})
    keep_records(short, [more, *records], "images")
    loaded(short)
    keep_records(short, [of_other_code(first), *records], "images")
    assert "different code" in refusal(short)


def test_runs_of_different_data_are_refused(small):
    keep_changed(small, data={"content_hash": "0ther"})
    assert "were trained on different data, data.content_hash 0ther, c0ntent; repeat them" in refusal(small)


def test_a_row_of_several_configurations_is_refused(small):
    by_brier = make_record("sharmix_learned", 1, q=1.25, r=1.5, objective="brier")
    records = [*small_records(), by_brier]
    keep_records(small, records)
    both = ", ".join(sorted({records[1]["run_id"], by_brier["run_id"]}))
    assert f"several configurations, run_id {both};" in refusal(small)
