"""Ctrl-C, SIGTERM and SIGKILL, of a run, of a job on a cluster and of a sweep."""

import os
import signal
import time

import psutil
import pytest
import torch

from tests.end_to_end.runner import QUICK, Started, only_record, start

pytestmark = pytest.mark.medium
LONG = (*QUICK, "trainer.max_epochs=100000", "checkpoint_seconds=0")


def test_an_interrupted_run_says_the_epoch_that_it_goes_on_from(tmp_path):
    began = ""
    for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        started = Started(tmp_path / "outputs", *LONG)
        started.wait_for("epoch 1/" if not began else "/100000")
        time.sleep(0.5)
        started.send(number)
        ended, printed = started.end()
        assert ended == status, printed
        assert "Traceback" not in printed
        assert began in printed
        (checkpoint,) = (tmp_path / "outputs").rglob("last-*.ckpt")
        epoch = torch.load(checkpoint, weights_only=True)["epoch"] + 2  # Lightning counts from 0
        assert printed.count("interrupted; ") == 1
        assert f"interrupted; the same command goes on from epoch {epoch}\n" in printed
        began = f"goes on from epoch {epoch}"


def test_a_run_in_a_job_of_slurm_trains_on_after_sigterm_until_it_is_killed(tmp_path):
    variables = {"SLURM_NTASKS": "1", "SLURM_JOB_NAME": "run", "SLURM_JOB_ID": "1", "SLURM_PROCID": "0"}
    variables |= {"SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_NODELIST": "localhost"}
    started = Started(tmp_path / "outputs", *QUICK, "trainer.max_epochs=30", **variables)
    started.wait_for("epoch 2/")
    started.send(signal.SIGTERM)
    status, printed = started.end()
    assert status == 0, printed
    assert "trains on" in printed
    assert only_record(tmp_path / "outputs")["epoch"] == 30
    assert not list(tmp_path.rglob("hpc_ckpt*"))


def at_work(process):
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
def test_a_sweep_on_several_cores_leaves_no_process_behind(tmp_path):
    workers = ("hydra/launcher=cores", "hydra.launcher.n_jobs=2", "seed=1,2")
    sweeps = [start(tmp_path / name, "-m", *LONG, *workers) for name in ("killed", "stopped")]
    children = []
    for process, printed in sweeps:
        while not all(f"[{run}/2] epoch 1/" in printed.read_text() for run in (1, 2)):
            assert process.poll() is None, printed.read_text()
            time.sleep(0.1)
        children += psutil.Process(process.pid).children(recursive=True)
    (killed, _), (stopped, printed) = sweeps
    killed.kill()
    assert killed.wait(timeout=60) == -signal.SIGKILL
    os.killpg(stopped.pid, signal.SIGINT)
    assert stopped.wait(timeout=60) == 130, printed.read_text()
    assert "Traceback" not in printed.read_text()
    assert printed.read_text().count("interrupted; the same command starts again where this one did") == 1
    deadline = time.monotonic() + 20
    while (left := [child for child in children if at_work(child)]) and time.monotonic() < deadline:
        time.sleep(0.2)
    for child in left:
        child.kill()
    assert not left
