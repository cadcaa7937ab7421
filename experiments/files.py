"""Writing files so that a reader never sees half of one."""

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

_UNFINISHED = ".unfinished"


def replace_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it to `path`.

    A process killed at any moment leaves either the old file or the new one. Missing folders are made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(_UNFINISHED, f".{path.name}.", path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp makes private files; results are for sharing
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def write_atomically(path: Path, text: str) -> None:
    """Replace the file at `path` by `text` in UTF-8, all or nothing."""
    replace_atomically(path, lambda file: file.write(text.encode()))


def unfinished_files(folder: Path) -> Iterator[Path]:
    """The temporary files that killed processes have left in a folder."""
    return folder.glob(f".*{_UNFINISHED}")
