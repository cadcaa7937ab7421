"""Checkpoint files: torch's ZIP file, then the SHA-256 of its bytes, so that damage is found before any use."""

import errno
import hashlib
from pathlib import Path
from pickle import UnpicklingError
from typing import IO, Any

from experiments.errors import DataError
from experiments.files import replace_atomically

_MARK = b"\nsha256:"  # between torch's part, which states its own length, and 64 hexadecimal digits
_LENGTH = len(_MARK) + 64


class DamagedFileError(DataError):
    """A damaged checkpoint file. The message names the file and what is wrong."""


def save_checkpoint(content: dict[str, Any], path: Path) -> None:
    """Write a checkpoint with its digest. After an error or a kill, the old file is unchanged."""
    import torch  # the import takes seconds, and `stated_digest` does not need it

    def write(file: IO[bytes]) -> None:
        digesting = _Digesting(file)
        try:
            torch.save(content, digesting)
        except RuntimeError as error:  # torch raises it in place of the error of the file
            raise (error.__context__ or error) from None
        file.write(_MARK + digesting.digest.hexdigest().encode())

    replace_atomically(path, write)


def load_checkpoint(path: Path, map_location: Any = "cpu") -> dict[str, Any]:
    """Read a checkpoint after a check of its digest. It can hold tensors and plain values, never code.

    Raises:
        DamagedFileError: the content differs from what was written.
        OSError: the file cannot be opened.
    """
    import torch

    check_digest(path)
    try:
        checkpoint: dict[str, Any] = torch.load(path, map_location=map_location, weights_only=True)
    except (RuntimeError, UnpicklingError, EOFError) as error:
        raise DamagedFileError(f"{path}: cannot be loaded ({error})") from error
    return checkpoint


def check_digest(path: Path) -> None:
    """Raise as `load_checkpoint`."""
    try:
        if (stated := stated_digest(path)) is None:
            raise DamagedFileError(f"{path}: does not end with a digest, so it is cut off, or of an earlier version")
        remaining, digest = path.stat().st_size - _LENGTH, hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(min(remaining, 2**20)):
                digest.update(block)
                remaining -= len(block)
    except OSError as error:
        if error.errno not in (errno.EIO, errno.EISDIR):
            raise
        raise DamagedFileError(f"{path}: {error.strerror}") from error
    if digest.hexdigest() != stated:
        raise DamagedFileError(f"{path}: the content does not have the digest at the end of the file")


def stated_digest(path: Path) -> str | None:
    """The digest at the end of a file, computed when the file was written; None if the file has no digest."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LENGTH))
        mark, digits = file.read(len(_MARK)), file.read()
    return digits.decode(errors="replace") if mark == _MARK else None


class _Digesting:
    """A file to write to, with the digest of the bytes written so far."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.digest = file, hashlib.sha256()

    def write(self, part: bytes) -> int:
        self.digest.update(part)
        return self.file.write(part)

    def flush(self) -> None:
        self.file.flush()
