"""Folders whose files are replaced together: a killed command leaves the old set or the new set, never a mix.

The new files are written into a fresh folder beside the old one, `.NAME.new`. Then the old folder is renamed to
`.NAME.old`, the fresh one takes its name, and the old one is removed. Between the two renames a reader finds no folder
at all; a process killed there leaves both sets whole, and the next command puts the old one back before it does
anything else.
"""

import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from experiments.files import replace_atomically
from experiments.folder_lock import held
from experiments.record import RecordError


def replace_files(folder: Path, files: Mapping[str, bytes], own: Collection[str]) -> list[Path]:
    """Replace all files in a folder that belong to a command by new files. Other files stay.

    Args:
        folder: the folder; made where there is none.
        files: the contents of the new files, by name.
        own: all names that the command's files can have, including the names in `files`.

        Returns:
            The command's earlier files that no longer exist.

    Raises:
        RecordError: the folder cannot be written; its files are as before.
    """
    folder = folder.resolve()  # a link stays a link
    with writing(folder.parent):
        _put_back(folder)
        new, old = _beside(folder)
        try:
            gone = _fill(new, folder, files, own)
            if folder.exists():
                folder.rename(old)
            new.rename(folder)
        finally:
            _put_back(folder)
    return gone


def put_back(folder: Path) -> None:
    """Restore the old folder if a command was killed while it replaced the folder."""
    folder = folder.resolve()
    if any(beside.exists() for beside in _beside(folder)):
        with writing(folder.parent):
            _put_back(folder)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Lock a folder against other commands that write into it. Errors of writing name the file and a remedy.

    Raises:
        RecordError: the folder cannot be made or written.
    """
    try:
        with held(folder, lambda: print(f"waits for another command, which is writing into {folder}", flush=True)):
            yield
    except OSError as error:
        named = Path(os.fsdecode(error.filename or folder))
        raise RecordError(
            f"{_obstacle(named)}: cannot be written ({error.strerror or error}); make room and see that it is a "
            "folder that you may write, or name another one"
        ) from error


def _fill(new: Path, folder: Path, files: Mapping[str, bytes], own: Collection[str]) -> list[Path]:
    new.mkdir()
    if folder.exists():
        shutil.copymode(folder, new)  # it may be shared with a group
    gone = []
    for path in sorted(folder.iterdir()) if folder.exists() else ():
        if path.name in own:
            gone += [path] if path.name not in files else []
        elif path.is_dir() and not path.is_symlink():
            shutil.copytree(path, new / path.name, symlinks=True)
        else:
            shutil.copy2(path, new / path.name, follow_symlinks=False)
    for name, content in files.items():
        replace_atomically(new / name, lambda file, content=content: file.write(content))
    return gone


def _put_back(folder: Path) -> None:
    new, old = _beside(folder)
    if new.exists():
        shutil.rmtree(new)
    if old.exists():  # always complete: it is removed under the other name
        old.rename(new if folder.exists() else folder)
    if new.exists():
        shutil.rmtree(new)


def _beside(folder: Path) -> tuple[Path, Path]:
    return folder.with_name(f".{folder.name}.new"), folder.with_name(f".{folder.name}.old")


def _obstacle(path: Path) -> Path:
    """The file in place of one of the path's folders, or else the path."""
    return next((parent for parent in path.parents if parent.exists() and not parent.is_dir()), path)
