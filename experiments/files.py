"""Writes files so that a reader never sees an incomplete file; keeps what is computed in files."""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

UNFINISHED = ".unfinished"
LOCAL_DATA = Path("data")  # data sets are downloaded into it: data/README.md
_log = logging.getLogger(__name__)


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
