"""The folder of downloaded data, and files that keep results computed from other data."""

import hashlib
import logging
from pathlib import Path

from experiments.files import replace_atomically

LOCAL_DATA = Path("data")  # data sets are downloaded into it; git ignores it
_log = logging.getLogger(__name__)
_DIGEST = hashlib.sha256().digest_size


def read_kept(file: Path, source: bytes) -> bytes | None:
    """The content that `keep` has written for the same source; None if there is none."""
    try:
        content = file.read_bytes()
    except OSError:
        return None
    digest, kept = content[:_DIGEST], content[_DIGEST:]
    return kept if digest == hashlib.sha256(source + kept).digest() else None


def keep(file: Path, source: bytes, content: bytes) -> None:
    """Keep content that was computed from a source, with a digest of both. A disk without write access is no error."""
    try:
        replace_atomically(file, lambda opened: opened.write(hashlib.sha256(source + content).digest() + content))
    except OSError as error:
        _log.warning("%s cannot be written (%s); it is computed again the next time", file, error.strerror)
