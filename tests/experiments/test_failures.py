"""Failures of the machine: one message with path and remedy, and nothing half-written."""

import errno
import os
import shutil
import tempfile
from pathlib import Path
from typing import ClassVar

import lightning.pytorch as L
import pytest
from lightning.pytorch.callbacks import Callback

from experiments.errors import MachineError
from experiments.job import perform
from tests.experiments.building import ADVICE, settings
from tests.sharmix.cases import every_case

pytestmark = [pytest.mark.medium, *(pytest.mark.filterwarnings(advice) for advice in ADVICE)]
QUICK = (
    *("experiment=digits", "model.hidden_units=4", "progress=none", "checkpoint_seconds=0", "trainer.max_epochs=2"),
    "+callbacks.raises._target_=tests.experiments.test_failures.Raises",
)
ALLOCATOR = "[enforce fail at alloc_cpu.cpp:121] data. DefaultCPUAllocator: can't allocate memory: you tried to …"


class Raises(Callback):
    """Raises an error in the second epoch, where one is given."""

    error: ClassVar[Exception | None] = None

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.error is not None and trainer.current_epoch == 1:
            raise self.error


def refused(folder: Path) -> str:
    with pytest.raises(MachineError) as caught:
        perform(settings(*QUICK), folder)
    message = str(caught.value)
    assert "\n" not in message
    assert not [*folder.rglob(".*")]
    return message


def test_a_disk_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(number: int):
        def fail(*arguments: object, **keywords: object) -> None:
            raise OSError(number, os.strerror(number))

        return fail

    cases = {
        "full": (os, "fsync", errno.ENOSPC, "No space left on device; make room there"),
        "quota": (os, "fsync", errno.EDQUOT, "Disk quota exceeded; make room there"),
        "broken": (os, "fsync", errno.EIO, "Input/output error; the disk or its connection fails"),
        "read-only": (tempfile, "mkstemp", errno.EROFS, "Read-only file system; make it writable"),
        "forbidden": (tempfile, "mkstemp", errno.EACCES, "Permission denied; make it writable"),
    }
    with every_case() as case:
        for name, (module, function, number, said) in cases.items():
            with case(disk=name), monkeypatch.context() as patched:
                patched.setattr(module, function, failing(number))
                message = refused(tmp_path / name)
                assert said in message
                assert str(tmp_path / name) in message
                assert "paths.outputs=FOLDER" in message
            assert not [path for path in (tmp_path / name).rglob("*") if path.is_file()]


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "seed-1"):
        assert refused(folder).startswith(f"{tmp_path / 'file'}: ")


def test_a_wrong_path_of_the_users_own_code_is_no_failure_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing, forbidden = FileNotFoundError(errno.ENOENT, "", "words.txt"), PermissionError(errno.EACCES, "", "/words")
    for error in (missing, forbidden):
        monkeypatch.setattr(Raises, "error", error)
        with pytest.raises(type(error)):
            perform(settings(*QUICK), tmp_path / "run")


def test_memory_that_is_used_up_is_told_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with every_case() as case:
        for number, error in enumerate((MemoryError(), RuntimeError(ALLOCATOR), OSError(errno.ENOMEM, "no memory"))):
            with case(error=error):
                monkeypatch.setattr(Raises, "error", error)
                message = refused(tmp_path / str(number))
                assert "memory" in message
                assert "data.batch_size" in message
    monkeypatch.setattr(Raises, "error", RuntimeError("another"))
    with pytest.raises(RuntimeError, match="another"):
        perform(settings(*QUICK), tmp_path / "other")


def test_a_folder_that_vanishes_meanwhile_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Raises, "on_train_epoch_start", lambda *_: shutil.rmtree(tmp_path / "run", ignore_errors=True))
    perform(settings(*QUICK), tmp_path / "run")
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"record.json", "metrics.csv", "weights.ckpt"}
