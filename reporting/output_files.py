"""The files of a command in a folder of results, each replaced completely or not at all."""

from collections.abc import Mapping
from pathlib import Path

from experiments.files import replace_atomically


def replace_files(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Write files by their names; returns their paths."""
    for name, content in files.items():
        replace_atomically(folder / name, lambda file, content=content: file.write(content))
    return [folder / name for name in files]
