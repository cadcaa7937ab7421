"""The command line."""

import subprocess
import sys

import pytest

from reporting.__main__ import main
from reporting.records.collected_records import read_records, records_path
from tests.reporting.synthetic_records import finish_runs, keep_records, make_record
from tests.reporting.synthetic_results import RESULTS, both, small_records


def test_collect_writes_the_file_of_each_experiment_and_prints_it(tmp_path, capsys):
    finish_runs(tmp_path / "outputs", [make_record(), make_record(experiment="digits")])
    folders = ["--outputs", str(tmp_path / "outputs"), "--results", str(tmp_path)]
    main(["collect", "airline", "digits", *folders])
    assert capsys.readouterr().out.split() == [str(records_path(tmp_path, name)) for name in ("airline", "digits")]
    finish_runs(tmp_path / "outputs", [make_record(seed=42)])
    keep_records(tmp_path, [make_record(seed=63)])
    main(["collect", "airline", *folders])
    assert [record.seed for record in read_records(tmp_path, "airline")] == [21, 42, 63]


def test_tables_are_printed_and_missing_seeds_can_be_allowed(small, capsys):
    main(["tables", *both(small)])
    assert str(small / "tables" / "small.md") in capsys.readouterr().out
    keep_records(small, list(small_records())[1:])
    main(["tables", *both(small), "--allow-missing-seeds"])


@pytest.mark.medium
def test_a_process_ends_with_one_line_and_imports_nothing_that_it_does_not_need(small):
    keep_records(small, [])
    code = """
import runpy, sys
import experiments.record
print(sorted({"torch", "lightning", "pandas", "numpy"} & set(sys.modules)))
try:
    runpy.run_module("reporting", run_name="__main__", alter_sys=True)
finally:
    print(sorted({"torch", "lightning"} & set(sys.modules)))
"""
    command = [sys.executable, "-W", "error", "-c", code, "tables", *both(small)]
    done = subprocess.run(command, cwd=RESULTS.parent, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "[]\n[]\n")
    assert done.stderr.startswith(f"error: {small}/records/airline.jsonl: the file is empty;")
    assert done.stderr.count("\n") == 1


@pytest.mark.medium
def test_the_report_is_written_and_its_file_printed(small, tmp_path, capsys):
    main(["report", *both(small), "--output", str(tmp_path / "results.html")])
    assert capsys.readouterr().out.startswith(f"{tmp_path / 'results.html'} (")
    with pytest.raises(SystemExit, match=r"error: .*no experiment in it has a finished run"):
        main(["report", "--outputs", str(tmp_path / "nowhere")])
