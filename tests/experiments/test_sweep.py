"""The file that the processes of a sweep share."""

import errno
import os
import socket
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from experiments import sweep


def test_a_sweep_removes_what_killed_sweeps_have_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep.SweepReport, "at_work", None)
    processes = {"killed": 2**30, "running": os.getppid(), "mine": os.getpid()}
    files = {name: tmp_path / f".ended-{socket.gethostname()}-{number}" for name, number in processes.items()}
    files["elsewhere"] = tmp_path / f".ended-{socket.gethostname()}-and-more-{2**30}"
    for file in files.values():
        file.write_text("ended\n")
    hydra = {"sweeper": {"_target_": "a.BasicSweeper", "params": {"seed": "1,2"}}, "overrides": {"task": []}}
    report = sweep.SweepReport()
    hydra |= {"launcher": {}, "sweep": {"dir": str(tmp_path)}}
    report.on_multirun_start(OmegaConf.create({"hydra": hydra, "paths": {"outputs": str(tmp_path)}}))
    assert set(tmp_path.iterdir()) == {files["running"], files["elsewhere"], files["mine"]}
    assert files["mine"].read_text() == "planned 2\n"
    assert report.place(0) == "\\[1/2] "


def test_a_sweep_in_a_folder_that_cannot_be_written_leaves_the_error_to_hydra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*arguments: object, **keywords: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(sweep.SweepReport, "at_work", None)
    monkeypatch.setattr(Path, "unlink", read_only)
    hydra = {"sweeper": {"_target_": "a.BasicSweeper"}, "overrides": {"task": []}, "sweep": {"dir": str(tmp_path)}}
    sweep.SweepReport().on_multirun_start(OmegaConf.create({"hydra": hydra, "paths": {"outputs": str(tmp_path)}}))
    assert sweep.SweepReport.at_work is None
