"""Sweeps beyond one process: what can be tried without a cluster. docs/how_to/on_a_cluster.md shows the rest."""

import signal
from pathlib import Path

import pytest

from tests.end_to_end.runner import QUICK, Started, command_line, only_record, run


@pytest.mark.medium
@pytest.mark.parametrize("launcher", ["basic", pytest.param("cores", marks=pytest.mark.slow)])
def test_a_failing_run_of_a_sweep_leaves_the_others_and_is_named_and_no_run_is_repeated(
    launcher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")  # as of a terminal that knows no other characters
    sweep = ("-m", "experiment=digits", "trainer.max_epochs=1", "activation=softmax,sharmix_fixed", "activation.q=1.75")
    start = run if launcher == "cores" else command_line
    first = start(tmp_path / "outputs", *sweep, f"hydra/launcher={launcher}")
    again = command_line(tmp_path / "outputs", *sweep)
    for status, printed in (first, again):
        assert status != 0
        assert "Traceback" not in printed
        assert printed.count("failed: ") == 1
        assert "activation=softmax activation.q=1.75" in printed
        assert "has no parameter q" in printed
    assert again[1].count("finished before") == 1
    assert only_record(tmp_path / "outputs")["config"]["activation"]["name"] == "sharmix_fixed"


@pytest.mark.medium
def test_a_run_in_a_job_of_slurm_trains_on_after_sigterm_until_it_is_killed(tmp_path: Path) -> None:
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
