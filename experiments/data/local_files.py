"""The folder of downloaded data, and files that keep what is computed from them."""

import logging
from collections.abc import Callable
from pathlib import Path

from experiments.files import replace_atomically

LOCAL_DATA = Path("data")  # data sets are downloaded into it; git ignores it
_log = logging.getLogger(__name__)


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
