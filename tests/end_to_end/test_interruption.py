"""Ctrl-C, SIGTERM and SIGKILL at any moment; and what refused runs leave."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch

from experiments.identity import ROOT
from tests.end_to_end.runner import QUICK, VARIABLES, Started

pytestmark = pytest.mark.medium
LONG = (*QUICK, "trainer.max_epochs=100000", "checkpoint_seconds=0")


def test_an_interrupted_run_says_the_epoch_that_it_goes_on_from(tmp_path: Path) -> None:
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


class Process:
    """run.py as a shell starts it, in a process group of its own."""

    def __init__(self, outputs: Path, *overrides: str) -> None:
        self.file = outputs.parent / f"{outputs.name}.txt"
        command = [sys.executable, str(ROOT / "run.py"), *overrides, f"paths.outputs={outputs}"]
        with self.file.open("w") as file:
            self.process = subprocess.Popen(
                command, stdout=file, stderr=file, env=os.environ | VARIABLES, start_new_session=True
            )

    def others(self) -> list[psutil.Process]:
        """The processes of the group that are at work, without the first."""
        found = []
        for process in psutil.process_iter():
            try:
                if os.getpgid(process.pid) == self.process.pid != process.pid:
                    found.append(process)
            except (ProcessLookupError, psutil.Error):
                continue
        return [process for process in found if process.status() != psutil.STATUS_ZOMBIE]

    def end(self) -> tuple[int, str]:
        status = self.process.wait(timeout=60)
        deadline = time.monotonic() + 20
        while (left := self.others()) and time.monotonic() < deadline:
            time.sleep(0.2)
        for process in left:
            process.kill()
        assert not left
        return status, self.file.read_text()


def test_a_sweep_on_several_cores_leaves_no_process_behind(tmp_path: Path) -> None:
    workers = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "seed=1,2")
    killed, stopped = (Process(tmp_path / name, "-m", *LONG, *workers) for name in ("killed", "stopped"))
    for sweep in (killed, stopped):
        while not all(f"[{run}/2] epoch 1/" in sweep.file.read_text() for run in (1, 2)):
            assert sweep.process.poll() is None, sweep.file.read_text()
            time.sleep(0.1)
    killed.process.kill()
    assert killed.end()[0] == -signal.SIGKILL
    os.killpg(stopped.process.pid, signal.SIGINT)
    status, printed = stopped.end()
    assert status == 130, printed
    assert "Traceback" not in printed
    assert printed.count("interrupted; the same command starts again where this one did") == 1
