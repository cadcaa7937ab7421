"""How runs below a folder stand."""

import os
import socket
from pathlib import Path

import pytest

from experiments.folder_lock import held
from experiments.record import RecordError
from experiments.sweep_progress import failed_line, planned_line
from reporting.report.page import report_of_outputs, time_left
from reporting.report.progress import State, read_progress
from tests.reporting.report.outputs import SECONDS, put_record, write_outputs
from tests.reporting.synthetic_records import make_record


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    write_outputs(tmp_path / "outputs")
    return tmp_path / "outputs"


def test_each_run_stands_as_it_does(outputs):
    progress = read_progress(outputs)
    assert progress.counts() == {State.FINISHED: 3, State.RUNNING: 0, State.FAILED: 1, State.STOPPED: 2, State.OPEN: 2}
    failed, begun, empty = progress.unfinished
    assert (failed.reason, failed.given) == ("epoch 2: it diverged", "activation=entmax seed=1")
    assert (begun.name, begun.activation, begun.seed) == ("digits/softmax-0123456789ab/seed-1", "softmax", 1)
    assert (len(begun.rows), begun.of, len(empty.rows)) == (2, 3, 0)
    assert not progress.damaged
    assert not progress.at_work


def test_a_run_whose_folder_a_process_holds_is_running(outputs):
    with held(outputs / "digits/softmax-0123456789ab/seed-1", print):
        counts = read_progress(outputs).counts()
    assert (counts[State.RUNNING], counts[State.STOPPED]) == (1, 1)


def test_the_time_left_is_that_of_open_runs_and_of_the_rest_of_those_begun(outputs):
    left = read_progress(outputs).seconds_left()
    assert left == pytest.approx(SECONDS * (2 + 1 + 1 / 3))  # two open, one stopped at once, one after 2 of 3 epochs


def test_nothing_is_left_and_nothing_estimated_where_all_have_finished(tmp_path):
    put_record(tmp_path, make_record(experiment="digits"))
    assert read_progress(tmp_path).seconds_left() is None


def test_the_runs_of_a_sweep_at_work_that_have_not_begun_are_open(tmp_path):
    put_record(tmp_path, make_record(experiment="digits"))
    (tmp_path / f"digits/.ended-{socket.gethostname()}-{os.getpid()}").write_text(f"{planned_line(40)}ended\n")
    progress = read_progress(tmp_path)
    assert progress.at_work
    assert progress.counts()[State.OPEN] == 39


def test_a_failed_run_that_has_finished_since_is_finished(outputs):
    put_record(outputs, make_record("entmax", 1, "digits", alpha=1.5))
    (file,) = outputs.glob("digits/.ended-*")
    record = next(outputs.glob("digits/entmax-*/seed-1"))
    file.write_text(file.read_text().replace("digits/entmax-ba9876543210/seed-1", str(record)))
    assert read_progress(outputs).counts()[State.FAILED] == 0


def test_damaged_files_are_named_and_the_others_shown(outputs):
    (record,) = outputs.glob("digits/sharmix*/seed-1/record.json")
    record.write_text(record.read_text()[:100])
    curves = outputs / "digits/softmax-0123456789ab/seed-1/metrics.csv"
    curves.write_bytes(b"\xff\xfe\x00damaged")
    (outputs / "digits/multirun.yaml").write_text("{")
    report = next(outputs.glob("digits/.ended-*"))
    report.write_bytes(b"\xff\xfe\x00")
    page = report_of_outputs(outputs, outputs / "report.html").read_text("utf-8")
    progress = read_progress(outputs)
    assert len(progress.damaged) == 3
    for file in (record, curves, report.parent):
        assert any(str(file) in text for text in progress.damaged), file
        assert str(file) in page
    assert progress.counts()[State.FINISHED] == 2


def test_the_page_links_home_only_where_there_is_a_page(outputs):
    page = outputs / "report.html"
    assert 'href="index.html"' not in report_of_outputs(outputs, page).read_text("utf-8")
    page.with_name("index.html").touch()
    assert 'href="index.html"' in report_of_outputs(outputs, page).read_text("utf-8")


@pytest.mark.parametrize("text", ["epoch,test/loss\n1,nan\n", "a,b\n1,2,3\n", "epoch\n2\n", "epoch,q\n1,one\n"])
def test_curves_that_no_run_writes_are_named_and_left_out(outputs, text):
    curves = outputs / "digits/softmax-0123456789ab/seed-1/metrics.csv"
    curves.write_text(text)
    progress = read_progress(outputs)
    assert str(curves) in progress.damaged[0]
    assert not any(run.rows for run in progress.unfinished)


def test_a_run_recorded_twice_is_shown_once_and_named(outputs):
    (folder,) = outputs.glob("digits/sharmix*/seed-1")
    (outputs / "copy").mkdir()
    (outputs / "copy" / "record.json").write_text((folder / "record.json").read_text())
    progress = read_progress(outputs)
    assert progress.counts()[State.FINISHED] == 3
    assert "the same run is recorded in" in progress.damaged[0]


def test_texts_of_runs_stay_texts_in_the_page(outputs):
    hostile = "</script><img src=x onerror=alert(1)>"
    (folder,) = outputs.glob("digits/softmax*")
    folder.rename(folder.with_name("<b>bold-0123456789ab"))
    report = next(outputs.glob("digits/.ended-*"))
    report.write_text(report.read_text() + failed_line(f"name={hostile}", hostile, f"digits/{hostile}"))
    (record,) = outputs.glob("digits/sharmix*/seed-1/record.json")
    record.write_text(hostile)
    page = report_of_outputs(outputs, outputs / "report.html").read_text("utf-8")
    assert page.count("&lt;img src=x onerror=alert(1)&gt;") >= 3
    assert "&lt;b&gt;bold" in page
    assert "<img src=x" not in page
    assert "<b>bold" not in page


def test_nothing_is_written(outputs):
    before = {path: path.stat().st_mtime_ns for path in outputs.rglob("*")}
    read_progress(outputs)
    assert {path: path.stat().st_mtime_ns for path in outputs.rglob("*")} == before


def test_a_folder_without_runs_is_refused(tmp_path):
    with pytest.raises(RecordError, match="there is no run below it"):
        read_progress(tmp_path)
    with pytest.raises(RecordError, match="no such folder"):
        read_progress(tmp_path / "nowhere")


def test_times_in_words():
    assert [time_left(seconds) for seconds in (39.2, 61, 5399, 5400, 36_001)] == [
        "40 s",
        "2 min",
        "90 min",
        "1.5 h",
        "10.1 h",
    ]
