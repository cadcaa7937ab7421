"""One process at a time in a folder, until it leaves or ends, however it ends."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def held(folder: Path, say: Callable[[], object]) -> Iterator[None]:
    """Have a folder alone among the processes that ask so. The lock is on the folder itself and leaves no file.

    Where another process has it, `say` is called, and this one waits. File systems without locks let all pass.
    """
    descriptor = _locked(folder, say)
    try:
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # processes that read data have copies of the descriptor
        os.close(descriptor)


def is_held(folder: Path) -> bool:
    """Whether a process has a folder alone now; False too where the file system has no locks. Nothing is written."""
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
        os.close(descriptor)  # the process that had the folder has removed it
