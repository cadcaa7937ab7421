"""Reads files and text; writes files so that a reader never sees an incomplete one; keeps what is computed in files."""

import errno
import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import IO

UNFINISHED = ".unfinished"
LOCAL_DATA = Path("data")  # data sets are downloaded into it: data/README.md
OTHER_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
MOST_NAMES = 8  # of a folder, in a message
_log = logging.getLogger(__name__)


def check_file(path: Path) -> None:
    """Raise an OSError that says what is there in place of a file; whoever opens a pipe waits without end."""
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
    except FileNotFoundError as error:
        raise FileNotFoundError(error.errno, f"{error.strerror}; {names_in(path.parent)}", str(path)) from None
    if kind != stat.S_IFREG:
        raise OSError(errno.EINVAL, f"It is {OTHER_KINDS.get(kind, 'a device')}, not a file", str(path))


def names_in(folder: Path) -> str:
    """What a folder holds, or if it is missing the nearest one above it, for the message that a file is missing."""
    there = next(one for one in (folder, *folder.absolute().parents) if one.is_dir())
    try:
        names = sorted(f"{one.name}/" if one.is_dir() else one.name for one in there.iterdir())
    except OSError as error:
        return f"{there} cannot be listed: {error.strerror}"
    more = [f"{len(names) - MOST_NAMES} more"] if len(names) > MOST_NAMES else []
    return f"{there} holds {', '.join([*names[:MOST_NAMES], *more]) or 'nothing'}"


def read_file(path: Path) -> bytes:
    """The content of a file; an OSError as `check_file`."""
    check_file(path)
    return path.read_bytes()


def text_of(content: bytes) -> str:
    """The text in the content of a file, by the rules of data/README.md; a ValueError names the line with a fault."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, byte = error.object.count(b"\n", 0, error.start) + 1, error.object[error.start]
        raise ValueError(f"not a text in UTF-8: byte 0x{byte:02x} in line {line}") from error


def replace_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it to `path`. Missing folders are made.

    A process that is killed at any moment leaves either the old file or the new one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}-{os.getpid()}{UNFINISHED}")
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        # Where the disk is full, torch.save fails once more when it closes the file, and raises that error.
        failed = error.__context__ if isinstance(error, RuntimeError) else error
        if isinstance(failed, OSError) and failed.errno is not None:
            raise OSError(failed.errno, failed.strerror, str(path)) from error
        raise


def write_atomically(path: Path, text: str) -> None:
    """Replace the file at `path` by `text` in UTF-8, completely or not at all."""
    replace_atomically(path, lambda file: file.write(text.encode()))


def kept(file: Path, compute: Callable[[], bytes]) -> bytes:
    """The content of a file. If there is no file, the content is computed, and kept if the disk allows it."""
    if file.is_file():
        return file.read_bytes()
    content = compute()
    try:
        replace_atomically(file, lambda opened: opened.write(content))
    except OSError as error:
        _log.warning("%s cannot be written (%s); it is computed again the next time", file, error.strerror)
    return content
