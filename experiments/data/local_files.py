"""The files that data come from, and the files that keep what was computed from them."""

import errno
import hashlib
import logging
import os
import stat
from pathlib import Path

from experiments.files import remove_unfinished, replace_atomically

LOCAL_DATA = Path("data")  # where a data set is fetched to; git ignores it
_log = logging.getLogger(__name__)
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_OPENED = {Path("/dev/fd"), Path("/proc/self/fd")}  # what a shell has opened for the command, such as <(command)
_DIGEST = hashlib.sha256().digest_size


def check_is_file(path: Path) -> None:
    """Raise an OSError unless an ordinary file lies at the path: a named pipe would block, and a device never end."""
    kind = stat.S_IFMT(path.stat().st_mode)
    if kind != stat.S_IFREG:
        raise OSError(errno.EINVAL, f"it is {_KINDS.get(kind, 'special')}, but must be an ordinary file", str(path))


def read_file(path: Path) -> bytes:
    """The content of an ordinary file; raises as `check_is_file`."""
    check_is_file(path)
    return path.read_bytes()


def read_input(path: Path) -> bytes:
    """The content of an ordinary file, or of what the shell has opened, to its end; raises as `check_is_file`."""
    return path.read_bytes() if path.parent in _OPENED or path == Path("/dev/stdin") else read_file(path)


def read_kept(file: Path, source: bytes) -> bytes | None:
    """What `keep` has written for the same source; None where there is no such file, or it is damaged."""
    try:
        content = read_file(file)
    except FileNotFoundError:
        return None
    except OSError as error:
        _log.warning("%s cannot be read (%s); it is computed again", file, error.strerror)
        return None
    digest, kept = content[:_DIGEST], content[_DIGEST:]
    if digest != hashlib.sha256(source + kept).digest():
        _log.warning("%s is damaged; it is computed again", file)
        return None
    return kept


def keep(file: Path, source: bytes, content: bytes) -> None:
    """Keep what was computed from a source, which a digest names; a disk that cannot be written to is no error."""
    try:
        remove_unfinished(file.parent)
        replace_atomically(file, lambda opened: opened.write(hashlib.sha256(source + content).digest() + content))
    except OSError as error:
        _log.warning("%s cannot be written (%s); it is computed again the next time", file, error.strerror)


def printable(name: str) -> str:
    """A file's name that can be printed: bytes that are no UTF-8 become escapes such as \\udce9."""
    return name.encode(errors="backslashreplace").decode()


def file_stamp(path: str) -> tuple[str, int]:
    """What changes when a file changes, by its path, size and time of change; and its size in bytes."""
    try:
        found = os.stat(path)
    except OSError:
        return f"{path}\0", 0
    return f"{path}\0{found.st_size}\0{found.st_mtime_ns}\0{found.st_mode}", found.st_size
