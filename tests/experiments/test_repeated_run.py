"""`force=true` over a finished run, and a run that goes on from damaged files: at no moment is a result lost."""

import csv
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import lightning.pytorch as L
import pytest
from lightning.pytorch.callbacks import Callback

from experiments import load_run
from experiments.errors import ConfigurationError, UserError
from experiments.files import this_process
from experiments.job import perform
from experiments.modules.classifier import Classifier
from experiments.record import Record, read_record
from experiments.run_folder import place_beside
from experiments.training import weights_hash
from tests.experiments.building import ADVICE, settings
from tests.sharmix.cases import every_case

pytestmark = [pytest.mark.medium, *(pytest.mark.filterwarnings(advice) for advice in ADVICE)]
HERE = "tests.experiments.test_repeated_run"
QUICK = (
    *("experiment=digits", "model.hidden_units=4", "progress=none", "checkpoint_seconds=0", "trainer.max_epochs=2"),
    f"+callbacks.stops._target_={HERE}.Stops",
)
RESULTS = {"record.json", "metrics.csv", "weights.ckpt"}


class Stops(Callback):
    """Ends a training after its first epoch, where it is to."""

    does: ClassVar[bool] = False

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.does and trainer.current_epoch == 1:
            raise RuntimeError("stopped")


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    folder = tmp_path_factory.mktemp("before") / "softmax" / "seed-1"
    perform(settings(*QUICK, "seed=1", "logger=tensorboard"), folder)
    return folder


def contents(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def consistent_record(folder: Path) -> Record:
    """The record, after a look at the curves and weights that stand beside it."""
    record = read_record((folder / "record.json").read_text(), "")
    if (folder / "metrics.csv").exists():
        with (folder / "metrics.csv").open() as file:
            rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
        assert rows == record.curves
    module, _ = load_run(folder)
    assert weights_hash(module) == record.weights_hash
    return record


def test_a_kill_at_any_moment_leaves_one_finished_run(
    before: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, kills = tmp_path / "softmax" / "seed-1", tmp_path / "kills"
    shutil.copytree(before, folder)
    kills.mkdir()
    copying = False

    def before_each(call: Callable[..., Any]) -> Callable[..., Any]:
        def call_after_copy(*arguments: Any, **keywords: Any) -> Any:
            """Keeps what a kill right before the call leaves, with the name of a process that is no more."""
            nonlocal copying
            if not copying:
                copying = True
                kill = kills / f"{len([*kills.iterdir()]):03}" / "softmax" / "seed-1"
                shutil.copytree(folder, kill)
                for path in kill.glob(".*.unfinished"):
                    path.rename(str(path).replace(this_process(), f"{socket.gethostname()}-{2**22 + 1}"))
                copying = False
            return call(*arguments, **keywords)

        return call_after_copy

    for name in ("replace", "rename", "unlink", "rmdir", "fsync"):
        monkeypatch.setattr(os, name, before_each(getattr(os, name)))
    new = perform(settings(*QUICK, "seed=2", "force=true", "logger=tensorboard"), folder)
    monkeypatch.undo()
    assert consistent_record(folder) == new
    assert {path.name for path in folder.iterdir()} == RESULTS | {"tensorboard"}

    seeds = []
    with every_case() as case:
        for kill in sorted(kills.iterdir()):
            with case(kill=kill.name):
                left = kill / "softmax" / "seed-1"
                record = consistent_record(left)
                seeds.append(record.seed)
                assert perform(settings(*QUICK, f"seed={record.seed}"), left) == record
                assert consistent_record(left) == record
                assert {path.name for path in left.iterdir()} <= RESULTS | {"tensorboard"}
                assert {path.name for path in left.iterdir()} >= RESULTS
    assert len(seeds) > 10
    assert set(seeds) == {1, 2}
    assert seeds == sorted(seeds)


def stopped(folder: Path) -> Path:
    """The checkpoint of a run that ended after its first epoch."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Stops, "does", True)
        with pytest.raises(RuntimeError, match="stopped"):
            perform(settings(*QUICK), folder)
    (last,) = folder.glob("last-*.ckpt")
    return last


def test_a_forced_run_that_does_not_finish_leaves_the_finished_one(before: Path, tmp_path: Path) -> None:
    folder = tmp_path / "seed-1"
    shutil.copytree(before, folder)
    there = contents(folder)
    with every_case() as case:
        for wrong in ("trainer.max_epochs=3", f"+callbacks.wrong._target_={HERE}.Missing", "data.test_fraction=0.0001"):
            with case(wrong=wrong), pytest.MonkeyPatch.context() as patched:
                patched.setattr(Stops, "does", True)
                with pytest.raises((RuntimeError, UserError)):
                    perform(settings(*QUICK, "force=true", "logger=tensorboard", wrong), folder)
                assert contents(folder) == there
                assert not [*folder.glob(".*")]
        with case(tried="one batch"):
            perform(settings(*QUICK, "force=true", "trainer.fast_dev_run=true"), folder)
            assert contents(folder) == there


def test_a_forced_run_without_a_finished_one_begins_anew(tmp_path: Path) -> None:
    stopped(tmp_path)
    record = perform(settings(*QUICK, "force=true"), tmp_path)
    assert record is not None
    assert len(record.curves) == 2
    assert {path.name for path in tmp_path.iterdir()} == RESULTS


def test_a_damaged_checkpoint_is_set_aside_and_the_run_begins_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last = stopped(tmp_path / "stopped")
    whole = last.read_bytes()
    spoiled = {
        "empty": b"",
        "cut off": whole[: len(whole) // 2],
        "garbage": b"garbage" * 1000,
        "flipped": whole[:2000] + bytes([whole[2000] ^ 4]) + whole[2001:],
    }
    with every_case() as case:
        for name, content in spoiled.items():
            with case(checkpoint=name):
                folder = tmp_path / name
                shutil.copytree(last.parent, folder)
                for _ in range(2):  # a second damaged file replaces the first
                    (folder / last.name).write_bytes(content)
                    stopped(folder)
                    lines = [line for line in capsys.readouterr().err.splitlines() if "damaged.ckpt" in line]
                    assert len(lines) == 1
                    assert lines[0].startswith(f"{folder / last.name}: ")
                    assert (folder / "damaged.ckpt").read_bytes() == content
                (folder / last.name).write_bytes(content)
                record = perform(settings(*QUICK), folder)
                assert "goes on from" not in capsys.readouterr().out
                assert record is not None
                assert [row["epoch"] for row in record.curves] == [1, 2]
                assert {path.name for path in folder.iterdir()} == RESULTS


def test_a_run_whose_best_weights_are_damaged_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Classifier, "selected_by", "test/accuracy")
    whole = perform(settings(*QUICK), tmp_path / "whole")
    with every_case() as case:
        for name in ("cut off", "gone"):
            with case(weights=name):
                best = stopped(tmp_path / name).with_name("weights.ckpt")
                content = best.read_bytes()
                best.unlink()
                if name == "cut off":
                    best.write_bytes(content[:-1])
                record = perform(settings(*QUICK), tmp_path / name)
                warning = capsys.readouterr().err
                assert "weights.ckpt" in warning
                assert "is now damaged.ckpt, and the run begins anew" in warning
                assert record.metrics == whole.metrics
                assert {path.name for path in best.parent.iterdir()} == RESULTS
                load_run(best.parent)


def test_a_damaged_record_is_named_and_force_replaces_it(before: Path, tmp_path: Path) -> None:
    whole = (before / "record.json").read_bytes()
    spoiled = {
        "empty": b"",
        "cut off": whole[: len(whole) // 2],
        "no text": b"\xff\xfe" + whole,
        "deep": b"[" * 100_000,
        "a list": b"[]",
        "zeros": bytes(len(whole)),
    }
    with every_case() as case:
        for name, content in spoiled.items():
            with case(record=name):
                folder = tmp_path / name
                shutil.copytree(before, folder)
                (folder / "record.json").write_bytes(content)
                there = contents(folder)
                for look in (lambda: perform(settings(*QUICK), folder), lambda: load_run(folder)):  # noqa: B023
                    with pytest.raises(ConfigurationError) as caught:
                        look()
                    assert "\n" not in str(caught.value)
                    assert str(caught.value).startswith(f"{folder / 'record.json'}: ")
                    assert str(caught.value).endswith(("force=true", "collect its record again", "remove it"))
                assert contents(folder) == there
    assert perform(settings(*QUICK, "force=true"), folder) == consistent_record(folder)
    (folder / "record.json").unlink()
    (folder / "record.json").mkdir()
    for force in ("force=true", "force=false"):
        with pytest.raises(ConfigurationError, match="a folder stands in the place of the record"):
            perform(settings(*QUICK, force), folder)


def test_a_forced_run_trains_below_its_folder_wherever_that_is() -> None:
    for folder in (Path("/results"), Path("/outputs/seed-1"), Path("/outputs/digits/softmax/seed-1")):
        assert place_beside(folder) != folder
        assert place_beside(folder).is_relative_to(folder)


def test_checkpoints_of_the_users_own_stay(tmp_path: Path) -> None:
    own = tmp_path / "pretrained.ckpt"
    own.write_bytes(b"of the user")
    for arguments in ((), (), ("force=true",)):  # a new run, a finished one, and one that replaces it
        perform(settings(*QUICK, *arguments), tmp_path)
        assert {path.name for path in tmp_path.iterdir()} == RESULTS | {own.name}
    (tmp_path / "record.json").unlink()
    perform(settings(*QUICK, "force=true"), tmp_path)
    assert own.read_bytes() == b"of the user"


def test_a_forced_run_after_one_killed_before_its_weights_were_in_place_keeps_them(
    before: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "softmax" / "seed-1"
    shutil.copytree(before, folder)
    record = perform(settings(*QUICK, "seed=2", "force=true"), folder)
    left = folder / f".@{socket.gethostname()}-{2**22 + 1}.unfinished" / "weights.ckpt"
    left.parent.mkdir()
    (folder / "weights.ckpt").rename(left)
    shutil.copy(before / "weights.ckpt", folder)
    monkeypatch.setattr(Stops, "does", True)
    with pytest.raises(RuntimeError, match="stopped"):
        perform(settings(*QUICK, "seed=2", "force=true"), folder)
    assert consistent_record(folder) == record
    (folder / "record.json").write_text("damaged")
    monkeypatch.undo()
    perform(settings(*QUICK, "seed=2", "force=true"), folder)
    assert consistent_record(folder).curves
