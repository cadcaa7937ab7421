"""A run in this process: what it leaves, what loggers are given, and how it goes on after it was stopped."""

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import lightning.pytorch as L
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers.logger import DummyLogger

from experiments import files, training
from experiments.errors import ConfigurationError, DataError
from experiments.files import replace_atomically
from experiments.job import perform
from experiments.loading import load_run
from experiments.settings import RunSettings
from tests.experiments.building import ADVICE, settings
from tests.experiments.data.generated import tweets, write_tweets

pytestmark = [pytest.mark.filterwarnings(advice) for advice in ADVICE]
HERE = "tests.experiments.test_training"
QUICK = ("experiment=digits", "model.hidden_units=4", "progress=none", "checkpoint_seconds=0", "trainer.max_epochs=2")


class Kept(DummyLogger):
    """Keeps what it is given, by name and step."""

    values: ClassVar[dict[tuple[str, int], float]] = {}
    statuses: ClassVar[list[str]] = []

    def __init__(self, folder: str) -> None:
        super().__init__()

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        for name, value in metrics.items():
            assert self.values.setdefault((name, step), value) == value

    def finalize(self, status: str) -> None:
        self.statuses.append(status)


class Fails(Callback):
    """Ends a run by an error where `at` says."""

    at: ClassVar[str | None] = None

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.at == f"epoch {trainer.current_epoch + 1}":
            raise RuntimeError("killed")

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.at == "end":
            raise RuntimeError("killed")


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    Kept.values.clear()
    Kept.statuses.clear()
    yield
    Fails.at = None


def killed(run: RunSettings, folder: Path, at: str) -> None:
    Kept.values.clear()
    Fails.at = at
    with pytest.raises(RuntimeError, match="killed"):
        perform(run, folder)
    Fails.at = None
    Kept.values.clear()
    assert not (folder / "record.json").exists()


@pytest.mark.medium
def test_a_logger_is_given_the_same_live_resumed_and_replayed(tmp_path: Path) -> None:
    run = settings(*QUICK, f"+logger.kept._target_={HERE}.Kept", f"+callbacks.fails._target_={HERE}.Fails")
    record = perform(run, tmp_path / "whole")
    live = dict(Kept.values)
    steps = [row["steps"] - 1 for row in record.curves]  # Lightning counts from 0
    assert [live["epoch", step] for step in steps] == [0, 1]
    assert [live["test/accuracy", step] for step in steps] == [row["test/accuracy"] for row in record.curves]
    assert {name for name, _ in live} == set(record.curves[0]) - {"steps"}
    assert set(Kept.statuses) == {"success"}

    Kept.values.clear()
    assert perform(run, tmp_path / "whole") == record
    assert Kept.values == live

    killed(run, tmp_path / "killed", "epoch 2")
    assert Kept.statuses[-1] == "failed"
    perform(run, tmp_path / "killed")
    assert Kept.values.keys() == live.keys()
    for name, step in live:
        if name not in ("training_seconds", "examples_per_second"):
            assert Kept.values[name, step] == live[name, step], name


@pytest.mark.parametrize("ending", [("trainer.max_epochs=1",), ("+callbacks.early_stopping.stopping_threshold=99",)])
def test_a_run_killed_before_its_record_trains_no_further_epoch(ending: tuple[str, ...], tmp_path: Path) -> None:
    stopping = ("callbacks=early_stopping", "data.validation_fraction=0.2")
    named = (f"+callbacks.fails._target_={HERE}.Fails", f"+logger.kept._target_={HERE}.Kept")
    run = settings(*QUICK, *stopping, *named, *ending)
    whole = perform(run, tmp_path / "whole")
    killed(run, tmp_path / "killed", "end")
    resumed = perform(run, tmp_path / "killed")
    assert [row["epoch"] for row in resumed.curves] == [row["epoch"] for row in whole.curves] == [1]
    assert resumed.weights_hash == whole.weights_hash
    assert resumed.metrics == whole.metrics
    assert Kept.values["epoch", int(resumed.curves[0]["steps"]) - 1] == 0


@pytest.mark.medium
def test_a_killed_run_does_not_go_on_over_other_data(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_tweets(tmp_path, tweets())
    airline = ("experiment=airline", f"paths.data={tmp_path}", "data.expected_examples=null", *QUICK[2:])
    run = settings(*airline, f"+callbacks.fails._target_={HERE}.Fails")
    killed(run, tmp_path / "killed", "epoch 2")
    (checkpoint,) = (tmp_path / "killed").glob("last-*.ckpt")
    write_tweets(tmp_path, [[*row[:3], " ".join(row[3].split()[::-1])] for row in tweets()])
    training._loaded.clear()
    killed(run, tmp_path / "killed", "epoch 1")
    assert f"begins anew: {checkpoint} is of other data" in caplog.text
    resumed = perform(run, tmp_path / "killed")
    assert resumed.weights_hash == perform(run, tmp_path / "whole").weights_hash
    assert resumed.data["content_hash"][:8] not in checkpoint.name


@pytest.mark.medium
def test_a_finished_run_is_loaded_with_its_own_data_alone(tmp_path: Path) -> None:
    perform(settings(*QUICK, "trainer.max_epochs=1"), tmp_path)
    load_run(tmp_path)
    record = json.loads((tmp_path / "record.json").read_text())
    content_hash, _ = record["data"].pop("content_hash"), record.pop("digest")
    for hashes, said in (
        ({"content_hash": content_hash[::-1]}, "its data set has changed since"),
        ({"split_hash": content_hash}, "its record is of an earlier version"),
    ):
        (tmp_path / "record.json").write_text(json.dumps(record | {"data": record["data"] | hashes}))
        with pytest.raises(DataError, match=said):
            load_run(tmp_path)


def test_what_a_killed_process_has_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = settings(*QUICK, "trainer.max_epochs=1")
    ended = f"{socket.gethostname()}-{2**22 + 1}"  # Linux has no process of this number
    for _ in range(2):  # before the run, and beside its record
        for name in ("record.json", "metrics.csv", "last-0.ckpt"):
            with monkeypatch.context() as patched:
                patched.setattr(files, "this_process", lambda: ended)
                patched.setattr(files.os, "replace", lambda old, new: None)
                replace_atomically(tmp_path / name, lambda file: None)
        (tmp_path / "last-0.ckpt").touch()
        assert len([*tmp_path.glob(".*")]) == 3
        perform(run, tmp_path)
        assert {file.name for file in tmp_path.iterdir()} == {"record.json", "metrics.csv", "weights.ckpt"}


@pytest.mark.parametrize("number", ["RANK", "SLURM_PROCID"])
def test_one_of_several_processes_says_that_the_run_has_finished(
    number: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "record.json").touch()
    monkeypatch.setenv(number, "1")
    assert perform(settings(*QUICK), tmp_path) is None
    assert capsys.readouterr().out == ""


def test_what_an_earlier_process_of_the_same_number_has_left_is_removed(tmp_path: Path) -> None:
    place = files.unfinished_folder(tmp_path)  # as in a container, where each command may have the number 1
    (place / "weights").mkdir(parents=True)
    files.remove_unfinished(tmp_path)
    assert place.exists()
    os.utime(place, (1e9, 1e9))
    files.remove_unfinished(tmp_path)
    assert not place.exists()


def test_what_a_live_process_writes_stays(tmp_path: Path) -> None:
    def meanwhile(_: object) -> None:
        perform(settings(*QUICK, "trainer.max_epochs=1"), tmp_path)
        assert len([*tmp_path.glob(".live.txt.*")]) == 1

    replace_atomically(tmp_path / "live.txt", meanwhile)
    assert (tmp_path / "live.txt").exists()


class Draws(Callback):
    """Draws a number when it is built."""

    drawn: ClassVar[list[float]] = []

    def __init__(self) -> None:
        self.drawn.append(torch.rand(()).item())


def test_a_callback_that_draws_numbers_draws_the_same_ones(tmp_path: Path) -> None:
    run = settings(*QUICK, "trainer.max_epochs=1", f"+callbacks.draws._target_={HERE}.Draws")
    for name in ("first", "second"):
        perform(run, tmp_path / name)
    assert len(Draws.drawn) == 2
    assert len(set(Draws.drawn)) == 1


def test_a_run_that_cannot_begin_leaves_the_finished_one(tmp_path: Path) -> None:
    perform(settings(*QUICK, "trainer.max_epochs=1"), tmp_path)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    for wrong in (f"+callbacks.wrong._target_={HERE}.Missing", "data.test_fraction=0.0001"):
        with pytest.raises(ConfigurationError):
            perform(settings(*QUICK, "force=true", wrong), tmp_path)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_sigterm_ends_a_training_by_the_handler_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[object] = []

    def handler(*arguments: object) -> None:
        taken.append(arguments)

    class Looks(Callback):
        def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
            taken.append(signal.getsignal(signal.SIGTERM))

    monkeypatch.setattr(training, "progress_callbacks", lambda *_: [Looks()])
    before = signal.signal(signal.SIGTERM, handler)
    try:
        perform(settings(*QUICK, "trainer.max_epochs=1"), tmp_path)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert taken == [handler]
