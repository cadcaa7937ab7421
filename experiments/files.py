"""Writing files so that a reader never sees half of one."""

import os
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

import psutil

_UNFINISHED = ".unfinished"


def replace_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it to `path`.

    A process killed at any moment leaves either the old file or the new one. Missing folders are made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(f"@{this_process()}{_UNFINISHED}", f".{path.name}.", path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp makes private files; results are for sharing
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_atomically(path: Path, text: str) -> None:
    """Replace the file at `path` by `text` in UTF-8, all or nothing."""
    replace_atomically(path, lambda file: file.write(text.encode()))


def remove_unfinished(folder: Path) -> None:
    """Remove the temporary files that killed processes of this machine have left in a folder.

    What a process of another machine has left stays, for it may be at work. Containers that share a folder need names
    of their own.
    """
    for file in folder.glob(f".*{_UNFINISHED}"):
        if has_ended(file.name.removesuffix(_UNFINISHED).rpartition("@")[2]):
            file.unlink(missing_ok=True)


def this_process() -> str:
    """The name of the machine, or of the container, and the number of the process."""
    return f"{socket.gethostname()}-{os.getpid()}"


def has_ended(process: str) -> bool:
    """Whether `this_process` was said by a process of this machine that is no more; of other machines nobody knows."""
    machine, _, number = process.rpartition("-")
    return machine == socket.gethostname() and number.isdecimal() and not psutil.pid_exists(int(number))
