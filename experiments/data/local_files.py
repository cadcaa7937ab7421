"""The files that hold data, and the files that keep results computed from data."""

import errno
import hashlib
import logging
import os
import stat
from pathlib import Path

from experiments.files import replace_atomically

LOCAL_DATA = Path("data")  # data sets are downloaded into it; git ignores it
_log = logging.getLogger(__name__)
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_OPENED = {Path("/dev/fd"), Path("/proc/self/fd")}  # files that a shell has opened for the command, such as <(command)
_DIGEST = hashlib.sha256().digest_size


def check_is_file(path: Path) -> None:
    """Raise an OSError unless the path is an ordinary file: a named pipe would block, and a device never ends."""
    kind = stat.S_IFMT(path.stat().st_mode)
    if kind != stat.S_IFREG:
        raise OSError(errno.EINVAL, f"it is {_KINDS.get(kind, 'special')}, but must be an ordinary file", str(path))


def read_file(path: Path) -> bytes:
    """The content of an ordinary file; raises as `check_is_file`."""
    check_is_file(path)
    return path.read_bytes()


def read_input(path: Path) -> bytes:
    """The content of an ordinary file, or of a file that the shell has opened; raises as `check_is_file`."""
    return path.read_bytes() if path.parent in _OPENED or path == Path("/dev/stdin") else read_file(path)


def read_kept(file: Path, source: bytes) -> bytes | None:
    """The content that `keep` has written for the same source; None if the file is missing or damaged."""
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
    """Keep content that was computed from a source, with a digest of both. A disk without write access is no error."""
    try:
        replace_atomically(file, lambda opened: opened.write(hashlib.sha256(source + content).digest() + content))
    except OSError as error:
        _log.warning("%s cannot be written (%s); it is computed again the next time", file, error.strerror)


def printable(name: str) -> str:
    """A file's name in printable form: bytes that are no UTF-8 become escapes such as \\udce9."""
    return name.encode(errors="backslashreplace").decode()


def file_stamp(path: str) -> tuple[str, int]:
    """A text that changes with a file, made of its path, size and time of change; and the size in bytes."""
    try:
        found = os.stat(path)
    except OSError:
        return f"{path}\0", 0
    return f"{path}\0{found.st_size}\0{found.st_mtime_ns}\0{found.st_mode}", found.st_size
