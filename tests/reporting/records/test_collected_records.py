"""Collecting and keeping the records of an experiment."""

import random
import shutil

import pytest

from experiments.record import RecordError
from experiments.run_folder import finished_run_aside
from reporting.records.collected_records import collect, read_records, records_path
from tests.reporting.synthetic_records import as_read, finish_runs, keep_records, make_record


def test_collected_records_are_read_back_sorted(tmp_path):
    records = [
        make_record("softmax", 21),
        make_record("softmax", 42),
        make_record("sharmix_learned", 9998, q=1.25, r=1.5),
        make_record("sharmix_learned", 21, q=1.5, r=1.25),
        make_record("sharmix_learned", 21, q=1.25, r=1.75),
    ]
    random.Random(0).shuffle(records)
    finish_runs(tmp_path / "outputs", [*records, make_record(experiment="digits")])
    (path,) = collect(["airline"], tmp_path / "outputs", tmp_path / "results")
    assert path == records_path(tmp_path / "results", "airline")
    kept = read_records(tmp_path / "results", "airline")
    assert [(r.config["activation"]["name"], r.config["activation"]["r"], r.seed) for r in kept] == [
        ("sharmix_learned", 1.5, 9998),
        ("sharmix_learned", 1.75, 21),
        ("sharmix_learned", 1.25, 21),
        ("softmax", None, 21),
        ("softmax", None, 42),
    ]
    first = path.read_bytes()
    collect(["airline"], tmp_path / "outputs", tmp_path / "results")
    assert path.read_bytes() == first
    assert list(path.parent.iterdir()) == [path]


def test_a_run_that_another_one_has_replaced_is_not_collected(tmp_path):
    finish_runs(tmp_path / "outputs", [make_record()])
    (folder,) = (tmp_path / "outputs" / "airline").glob("*/21")
    shutil.copytree(folder, finished_run_aside(folder))  # a process was killed before it removed the old run
    collect(["airline"], tmp_path / "outputs", tmp_path)
    assert len(read_records(tmp_path, "airline")) == 1


def test_no_folder_of_the_machine_is_kept(tmp_path):
    record = make_record()
    record["config"]["paths"] = {"data": "/home/somebody/data", "outputs": "outputs"}
    record["config"]["data"]["folder"] = "/home/somebody/data"
    finish_runs(tmp_path / "outputs", [record])
    (path,) = collect(["airline"], tmp_path / "outputs", tmp_path / "results")
    assert "somebody" not in path.read_text()
    assert read_records(tmp_path / "results", "airline") == [as_read(make_record())]


def test_kept_records_of_other_runs_stay(tmp_path):
    outputs, results = tmp_path / "outputs", tmp_path / "results"
    keep_records(results, [make_record(seed=42), make_record(seed=63) | {"wall_time_seconds": 1.0}])
    finish_runs(outputs, [make_record(seed=21), make_record(seed=63)])
    collect(["airline"], outputs, results)
    kept = read_records(results, "airline")
    assert [record.seed for record in kept] == [21, 42, 63]
    assert kept[2] == as_read(make_record(seed=63))  # the new record of the same run
    broken = keep_records(results, [])
    broken.write_text("broken\n", "utf-8")
    with pytest.raises(RecordError, match=f"^{broken}, line 1: "):
        collect(["airline"], outputs, results)
    assert broken.read_text("utf-8") == "broken\n"


def test_a_record_in_the_wrong_place_is_named(tmp_path):
    broken = make_record(seed=42)
    del broken["code"]["digest"]
    cases = [
        ([make_record(), broken], r"airline\.jsonl, line 2: the key code\.digest is missing"),
        ([make_record(experiment="digits")], "line 1: experiment='digits', allowed is 'airline'"),
        ([make_record(), make_record()], r"line 2: .*seed=21 is also recorded in .*line 1"),
    ]
    for records, message in cases:
        keep_records(tmp_path, records)
        with pytest.raises(RecordError, match=message):
            read_records(tmp_path, "airline")
