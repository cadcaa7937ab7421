"""What a sweep leaves of how it goes."""

import os
import socket
from pathlib import Path

from experiments.sweep_progress import FAILURES, Failure, failed_line, is_of_a_run, planned_line, read_sweeps, shown


def test_a_sweep_at_work_tells_what_is_planned_and_what_has_ended(tmp_path: Path) -> None:
    failed = failed_line("seed=2", ValueError("it\tdiverged\nat once"), "/outputs/softmax/seed-2")
    (tmp_path / f".ended-{socket.gethostname()}-{os.getpid()}").write_text(planned_line(4) + "ended\n" + failed)
    (sweep,) = read_sweeps(tmp_path)
    assert (sweep.planned, sweep.ended, sweep.at_work) == (4, 2, True)
    assert sweep.failures == [Failure("seed=2", "it diverged", Path("/outputs/softmax/seed-2"))]


def test_a_killed_sweep_is_not_at_work(tmp_path: Path) -> None:
    (tmp_path / f".ended-{socket.gethostname()}-{2**30}").write_text(planned_line(None))
    (sweep,) = read_sweeps(tmp_path)
    assert (sweep.planned, sweep.ended, sweep.at_work) == (None, 0, False)


def test_failures_stay_after_a_sweep(tmp_path: Path) -> None:
    (tmp_path / FAILURES).write_text(failed_line("seed=2", "it diverged", "/outputs/softmax/seed-2"))
    (sweep,) = read_sweeps(tmp_path)
    assert (sweep.planned, sweep.at_work, len(sweep.failures)) == (None, False, 1)


def test_people_read_the_settings_and_the_error() -> None:
    line = failed_line("seed=2", "it diverged", "/outputs/softmax/seed-2")
    assert shown(line) == "  seed=2: it diverged"
    assert is_of_a_run(line)
    assert not is_of_a_run(planned_line(4))
