"""A lock for one process at a time in a folder. It is released when the process unlocks it or ends in any way."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def held(folder: Path, say: Callable[[], object]) -> Iterator[None]:
    """Lock a folder against the other processes that call this function. The lock leaves no file.

    If another process holds the lock, `say` is called, and this process waits. On a file system without locks, no
    process waits.
    """
    descriptor = _locked(folder, say)
    try:
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # worker processes that read data have copies of the descriptor
        os.close(descriptor)


def is_held(folder: Path) -> bool:
    """Whether a process holds the lock of a folder now; always False on a file system without locks. Writes nothing."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def _locked(folder: Path, say: Callable[[], object]) -> int:
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
        with suppress(OSError):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say()
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), folder.stat()):
                return descriptor
        os.close(descriptor)  # the process that held the lock has removed the folder
