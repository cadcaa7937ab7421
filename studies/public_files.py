"""Reads files of public data sets from the data folder, and checks their content."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from experiments.errors import DataError, reading
from experiments.files import read_file


def read_public_file(data: Path | None, entry: Mapping[str, str]) -> bytes:
    """The content of a public file.

    Args:
        data: the folder of the data sets, or None.
        entry: `file`, the path below that folder; `url`, the public home; `sha256`, of the content.

    Raises:
        DataError: the file is missing, or has another content.
    """
    remedy = f"download {entry['url']} and keep it as {Path(data or 'FOLDER', entry['file'])}"
    if data is None:
        raise DataError(f"no folder of data sets is given; {remedy}, then give --data FOLDER, or DATA=FOLDER to make")
    file = data / entry["file"]
    with reading(file, remedy):
        content = read_file(file)
    if (found := hashlib.sha256(content).hexdigest()) != entry["sha256"]:
        raise DataError(f"{file}: its SHA-256 is {found}, but {entry['sha256']} is expected; {remedy}")
    return content
