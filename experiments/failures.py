"""Reports failures of the machine, such as a full disk, as one message that names the path and the remedy."""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from experiments.errors import MachineError, UserError

_ELSEWHERE = "or choose another folder with paths.outputs=FOLDER; then repeat the command"
_ROOM = f"make room there, {_ELSEWHERE}"
_RIGHTS = f"make it writable, {_ELSEWHERE}"
_IN_THE_WAY = f"move away what stands there, {_ELSEWHERE}"
_VANISHED = "it does not exist, or was removed meanwhile; bring it back, and repeat the command"
_BROKEN = f"the disk or its connection fails; mend it, {_ELSEWHERE}"
_REMEDIES = {
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EFBIG: f"allow larger files (ulimit -f), {_ELSEWHERE}",
    errno.EROFS: _RIGHTS,
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.ENOTDIR: _IN_THE_WAY,
    errno.EEXIST: _IN_THE_WAY,
    errno.EISDIR: _IN_THE_WAY,
    errno.ENOTEMPTY: _IN_THE_WAY,
    errno.ENOENT: _VANISHED,
    errno.ESTALE: _VANISHED,
    errno.EIO: _BROKEN,
    errno.ENOTCONN: _BROKEN,
    errno.ENAMETOOLONG: "give a shorter name, or a shorter paths.outputs=FOLDER",
    errno.EMFILE: "allow more open files (ulimit -n), or start fewer runs at a time",
    errno.ENFILE: "too many files are open on this machine; start fewer runs at a time",
    errno.EAGAIN: "too many processes are at work (ulimit -u); start fewer runs at a time",
}
# Errors that a wrong path in a program causes too.
_OF_ITS_PATH = (errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ENOTEMPTY, errno.EACCES, errno.EPERM)
_MEMORY = re.compile(r"can't allocate memory|not enough memory|out of memory", re.IGNORECASE)  # torch's messages
_SMALLER = "give a smaller data.batch_size or data.evaluation_batch_size, or start fewer runs at a time"


@contextmanager
def machine_failures(place: Path | None = None) -> Iterator[None]:
    """Raise a MachineError for a failure of the machine; other errors pass unchanged.

    Args:
        place: the folder that is written to, for failures whose file the system does not name. If it is given, an
            error about a path elsewhere is no failure of the machine: the user's own code used that path.
    """
    try:
        yield
    except UserError:
        raise
    except (OSError, MemoryError, RuntimeError) as error:
        if message := _explained(error, place):
            raise MachineError(message) from error
        raise


def _explained(error: Exception, place: Path | None) -> str | None:
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return f"the memory of this machine is used up ({text}); {_SMALLER}"
    if not isinstance(error, OSError):
        return f"the memory of the device is used up ({text}); {_SMALLER}" if _MEMORY.search(text) else None
    if error.errno not in _REMEDIES:
        return None
    path = error.filename if isinstance(error.filename, str | Path) else place or "the outputs"
    if place is not None and error.errno in _OF_ITS_PATH and not _on_the_way(Path(path).absolute(), place):
        return None
    if error.errno == errno.ENOTDIR:
        path = next((above for above in Path(path).parents if above.exists()), path)  # a file, not a folder
    return f"{path}: {error.strerror}; {_REMEDIES[error.errno]}"


def _on_the_way(path: Path, place: Path) -> bool:
    return path.is_relative_to(place) or place.is_relative_to(path)
