"""Writes files so that a reader never sees an incomplete file."""

import contextlib
import csv
import io
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import IO

import psutil

_UNFINISHED = ".unfinished"


def replace_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it to `path`.

    A process killed at any moment leaves either the old file or the new one. Missing folders are made.

    Raises:
        OSError: the file cannot be written; names a file.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(f"@{this_process()}{_UNFINISHED}", f".{path.name}.", path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o644)  # mkstemp makes private files, but results are shared
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        if error.filename is None or _UNFINISHED in str(error.filename):
            error.filename = str(path)  # if the disk is full, the system names no file
        raise


def write_atomically(path: Path, text: str) -> None:
    """Replace the file at `path` by `text` in UTF-8, completely or not at all."""
    replace_atomically(path, lambda file: file.write(text.encode()))


def write_rows(path: Path, rows: Sequence[Mapping[str, float]]) -> None:
    """Replace the CSV file at `path` by these rows, completely or not at all."""
    text = io.StringIO()
    columns = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, text.getvalue())


def unfinished_folder(folder: Path) -> Path:
    """Path of a folder below `folder` for this process's unfinished files; `remove_unfinished` removes it."""
    return folder / f".@{this_process()}{_UNFINISHED}"


def is_unfinished(path: Path) -> bool:
    """Whether a process is preparing the file or folder, or was killed before it was complete."""
    return path.name.endswith(_UNFINISHED)


def unfinished_folders(folder: Path) -> list[Path]:
    """The folders below `folder` that any process is preparing, or was preparing when it was killed."""
    return [place for place in folder.glob(f".*{_UNFINISHED}") if place.is_dir()]


def remove_unfinished(folder: Path) -> None:
    """Remove the temporary files and folders that killed processes of this machine have left in a folder.

    Files of other machines stay, because their processes may still be at work. Containers that share a folder need
    different names.
    """
    for path in folder.glob(f".*{_UNFINISHED}"):
        with contextlib.suppress(FileNotFoundError):  # another process has removed it
            process = path.name.removesuffix(_UNFINISHED).rpartition("@")[2]
            if has_ended(process, path.stat().st_mtime):
                remove(path)


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that it holds, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def remove_empty_folders(folder: Path, root: Path, ignored: Collection[str] = ()) -> None:
    """Remove a folder that is empty apart from the names `ignored`, and the empty folders above it, up to `root`."""
    with contextlib.suppress(OSError):  # not empty, or gone
        if all(path.name in ignored for path in folder.iterdir()):
            for name in ignored:
                remove(folder / name)
        for each in (folder, *folder.parents):
            if each == folder or each.is_relative_to(root.absolute()):
                each.rmdir()


def this_process() -> str:
    """The name of the machine, or of the container, and the number of the process."""
    return f"{socket.gethostname()}-{os.getpid()}"


def has_ended(process: str, since: float = float("inf")) -> bool:
    """Whether a process named by `this_process` has ended; False for a process of another machine.

    If a process with this number began after the time `since`, it is another process, and the named one has ended.
    """
    machine, _, number = process.rpartition("-")
    if machine != socket.gethostname() or not number.isdecimal():
        return False
    if not psutil.pid_exists(int(number)):
        return True
    try:
        return psutil.Process(int(number)).create_time() > since
    except psutil.Error:  # it has just ended, or belongs to somebody else
        return False
