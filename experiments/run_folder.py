"""The folder of a run: its name, who may write its files, how a repeated run takes the place of a finished one."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from experiments.errors import ConfigurationError
from experiments.files import UNFINISHED
from experiments.identity import run_id
from experiments.settings import RunSettings

RECORD, CURVES, WEIGHTS = "record.json", "metrics.csv", "weights.ckpt"
CHECKPOINTS = "last-*.ckpt"


def folder_of(settings: RunSettings) -> Path:
    """<outputs>/<name>/<activation>-<hash of the settings>/seed-<seed>."""
    own = f"{settings.activation.name}-{run_id(settings.model_dump())}"
    return Path(settings.paths.outputs, settings.name, own, f"seed-{settings.seed}")


def finished_run_aside(folder: Path) -> Path:
    """Where a finished run lies while another one takes its place."""
    return folder.with_name(f".{folder.name}.replaced")  # no name that a person gives to a copy


@contextlib.contextmanager
def replaced(folder: Path) -> Iterator[None]:
    """Move a finished run aside, if it is not there yet, and bring it back unless the block writes a new record."""
    if not finished_run_aside(folder).exists():
        folder.rename(finished_run_aside(folder))
    try:
        yield
    finally:
        end_replacement(folder)


def end_replacement(folder: Path) -> None:
    """Keep the new run if it has its record; otherwise bring the finished run back. Also repairs what a kill left.

    The new run keeps the files of others in the finished run's folder, such as W&B runs that are not uploaded yet.
    """
    aside = finished_run_aside(folder)
    if not aside.exists():
        return
    if not (folder / RECORD).exists():
        shutil.rmtree(folder, ignore_errors=True)
        aside.rename(folder)
        return
    for path in (*aside.glob("wandb/*"), *aside.iterdir()):
        target = folder / path.relative_to(aside)
        if path.name not in (RECORD, CURVES, WEIGHTS) and target.parent.exists() and not os.path.lexists(target):
            path.rename(target)
    shutil.rmtree(aside)


def remove_all_but(folder: Path, weights: str | None) -> None:
    """Remove checkpoints, half-written files, and weights other than these; files of others stay."""
    for pattern in (CHECKPOINTS, WEIGHTS, f".*{UNFINISHED}"):
        for file in folder.glob(pattern):
            if file.name != weights:
                file.unlink()


def remove_empty(folder: Path, root: Path) -> None:
    """Remove a folder, if it is empty, and then the empty folders above it, up to `root`."""
    folder, root = folder.absolute(), root.absolute()
    with contextlib.suppress(OSError):  # not empty
        for each in (folder, *(parent for parent in folder.parents if parent.is_relative_to(root))):
            if each.exists():
                each.rmdir()


def make_folder(folder: Path) -> None:
    """Make a folder and those above it; a ConfigurationError if the system refuses, for any of its many reasons."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        remedy = "give another folder with paths.outputs=FOLDER"
        raise ConfigurationError(f"{folder}: {error.strerror}; {remedy}") from error


@contextlib.contextmanager
def locked(file: Path, say: Callable[[str], object]) -> Iterator[None]:
    """Hold a lock against other processes, as a lock of the operating system on `file`.

    If another process holds the lock, `say` gets a text that names the holder, and this process waits. A process that
    ends in any way gives up its locks. Where the file system has no locks, no process waits.
    """
    while True:
        make_folder(file.parent)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        with contextlib.suppress(OSError):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(file.read_text() or "another process")
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), file.stat()):
                break
        os.close(descriptor)  # the process that held the lock has removed the file
    try:
        file.write_text(f"process {os.getpid()} ({psutil.Process().name()})")
        yield
    finally:
        file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # worker processes that read data have copies of the descriptor
        os.close(descriptor)
