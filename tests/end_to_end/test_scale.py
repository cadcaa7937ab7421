"""Sweeps beyond one process: what can be tried without a cluster. docs/how_to/on_a_cluster.md shows the rest."""

import json
import signal
import time
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from experiments import sweep
from experiments.errors import ConfigurationError
from experiments.identity import ROOT
from experiments.job import check_objective
from experiments.sweep_progress import read_sweeps
from tests.end_to_end.runner import QUICK, Started, command_line, only_record, records, run

CONFIGS = sorted((ROOT / "conf" / "hydra").glob("*/*.yaml"))


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.stem)
def test_the_packages_of_every_config_are_known(file: Path) -> None:
    plugin = OmegaConf.load(file).defaults[0]
    if plugin != "joblib":  # part of `make setup`
        group = f"hydra/{file.parent.name}"
        assert {f"{group}={file.stem}", f"{group}={plugin}"} <= sweep.PLUGINS.keys()


def test_missing_packages_are_named_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    status, printed = command_line(tmp_path / "outputs", "-m", "experiment=digits", "hydra/launcher=slurm")
    assert status != 0
    assert printed == (
        "hydra/launcher=slurm needs packages that are not installed: pip install hydra-submitit-launcher\n"
    )


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.stem)
def test_every_config_composes_or_says_what_to_install(file: Path, tmp_path: Path) -> None:
    choice = f"hydra/{file.parent.name}={file.stem}"
    status, printed = command_line(tmp_path / "outputs", "--cfg", "hydra", *QUICK, choice)
    if missing := sweep.missing_packages([choice]):  # not part of `make setup`
        assert (status, printed) == (1, f"{missing}\n")
    else:
        assert status == 0, printed


@pytest.mark.parametrize(
    ("objective", "fraction", "named"), [("test/accuracy", 0.2, "test/accuracy"), (None, 0, "validation_fraction=0")]
)
def test_nothing_is_chosen_on_the_test_split(objective: str | None, fraction: float, named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        check_objective(objective, fraction)
    check_objective("validation/accuracy", 0.2)
    check_objective(None, None)


def test_the_time_left_follows_from_the_runs_that_have_ended(tmp_path: Path) -> None:
    report = sweep.SweepReport()
    report.runs, report.ended = 4, tmp_path / "ended"
    assert report.place(1) == "\\[2/4] "  # two runs side by side: the second begins before any has ended
    report.ended.write_text("ended\n  seed=42: it diverged\n")
    report.began = time.time() - 30
    assert report.place(2) == "\\[3/4, 30 s left] "


@pytest.mark.medium
def test_side_by_side_a_failing_run_leaves_the_others_and_is_named_and_no_run_is_repeated(tmp_path: Path) -> None:
    sweep = ("-m", "experiment=digits", "trainer.max_epochs=1", "activation=softmax,sharmix_fixed")
    sweep += ("activation.q=1.5,1.75",)
    first = run(tmp_path / "outputs", *sweep, "hydra/launcher=cores")
    again = command_line(tmp_path / "outputs", *sweep)
    for status, printed in (first, again):
        assert status != 0
        assert "Traceback" not in printed
        assert "failed runs of the sweep, 2 of 4:" in printed
        assert printed.partition("failed runs")[2].count("has no parameter q") == 2
        assert "[4/4, " in printed
    assert again[1].count("finished before") == 2
    found = [json.loads(file.read_text()) for file in records(tmp_path / "outputs")]
    assert [record["config"]["activation"]["name"] for record in found] == ["sharmix_fixed"] * 2
    assert {record["config"]["activation"]["q"] for record in found} == {1.5, 1.75}
    assert not list((tmp_path / "outputs").rglob(".ended-*"))
    (left,) = read_sweeps(tmp_path / "outputs" / "digits")
    assert len(left.failures) == 2
    assert "has no parameter q" in left.failures[0].reason


@pytest.mark.medium
@pytest.mark.parametrize("slurm", [False, True], ids=["alone", "in_a_job_of_slurm"])
def test_a_run_that_is_told_to_end(slurm: bool, tmp_path: Path) -> None:
    """Alone it ends with the status of SIGTERM; in a job of SLURM it trains on until it is killed."""
    variables = {"SLURM_NTASKS": "1", "SLURM_JOB_NAME": "run", "SLURM_JOB_ID": "1", "SLURM_PROCID": "0"}
    variables |= {"SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_NODELIST": "localhost"}
    epochs = 30 if slurm else 100_000
    started = Started(tmp_path / "outputs", *QUICK, f"trainer.max_epochs={epochs}", **(variables if slurm else {}))
    started.wait_for("epoch 2/")
    started.send(signal.SIGTERM)
    status, printed = started.end()
    if slurm:
        assert status == 0, printed
        assert "trains on" in printed
        assert only_record(tmp_path / "outputs")["epoch"] == epochs
        assert not list(tmp_path.rglob("hpc_ckpt*"))
    else:
        assert status == 128 + signal.SIGTERM
        assert "interrupted; the same command begins anew, for there is no checkpoint yet" in printed
        assert not records(tmp_path / "outputs")
