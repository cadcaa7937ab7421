"""The files of a command in a folder of results, each replaced completely or not at all."""

from collections.abc import Collection, Mapping
from pathlib import Path

from experiments.files import replace_atomically


def replace_files(folder: Path, files: Mapping[str, bytes], own: Collection[str] = ()) -> list[Path]:
    """Write files by their names, and remove the command's earlier files that no longer belong there.

    `own` has all names that the command can write; files of others stay. Returns the files that were removed.
    """
    for name, content in files.items():
        replace_atomically(folder / name, lambda file, content=content: file.write(content))
    gone = sorted(folder / name for name in {*own} - {*files} if (folder / name).exists())
    for path in gone:
        path.unlink()
    return gone
