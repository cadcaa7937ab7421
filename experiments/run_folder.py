"""The folder of a run: its files, and how a new record takes the place of an old one."""

import contextlib
import os
from pathlib import Path
from typing import IO

from experiments.checkpoint_files import stated_digest
from experiments.errors import ConfigurationError
from experiments.files import (
    is_unfinished,
    remove,
    remove_unfinished,
    replace_atomically,
    unfinished_folder,
    unfinished_folders,
    write_rows,
)
from experiments.record import Record, RecordError, load_record

RECORD, CURVES, WEIGHTS = "record.json", "metrics.csv", "weights.ckpt"
_CHECKPOINTS = ("last-*.ckpt", "damaged.ckpt", WEIGHTS)  # all that a run writes, and may remove


def record_of(folder: Path) -> Record:
    """The record of a finished run; raises a ConfigurationError that names the fault."""
    try:
        return load_record(folder / RECORD)
    except RecordError as error:
        raise ConfigurationError(str(error)) from error


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints and weights that runs have left in a folder. Other files may belong to the user."""
    return [file for names in _CHECKPOINTS for file in folder.glob(names)]


def place_beside(folder: Path) -> Path:
    """The folder in which a run trains while `folder` holds a finished run; loggers show the path's last two names."""
    return unfinished_folder(folder) / folder.parent.name / folder.name


def folder_of(place: Path) -> Path:
    """The folder of the run that trains in `place`: `place` itself, or the folder that was passed to `place_beside`."""
    return place.parents[2] if is_unfinished(place.parents[1]) else place


def finish(folder: Path, place: Path, record: Record) -> None:
    """Write the record of a run and remove everything but its results.

    If the process is killed at any moment, the folder holds either the previous finished run or the new run. One rename
    replaces the record, and the previous curves are removed before it. The weights are replaced after the rename: the
    record holds the digest of its weights, so `tidy` finds them even if this process is killed in between.

    Args:
        folder: of the run.
        place: folder of the training's files: `folder`, or a folder below it if `folder` holds a finished run.
        record: of the training.
    """

    def write(file: IO[bytes]) -> None:
        file.write(record.to_json(indent=1).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
        if place != folder:
            (folder / CURVES).unlink(missing_ok=True)  # the previous curves; `tidy` writes the new ones

    replace_atomically(folder / RECORD, write)
    tidy(folder, record)
    if place != folder:
        for logged in place.iterdir():
            if logged.suffix != ".ckpt":
                remove(folder / logged.name)
                logged.rename(folder / logged.name)


def tidy(folder: Path, record: Record) -> None:
    """Keep the results of a finished run, and remove the other files that killed runs have left."""
    with contextlib.suppress(FileNotFoundError):  # another process has moved them
        for weights in unfinished_weights(folder, record):
            weights.replace(folder / WEIGHTS)
    if not (folder / CURVES).exists():
        write_rows(folder / CURVES, record.curves)
    for checkpoint in checkpoints(folder):
        if checkpoint.name != record.weights:
            remove(checkpoint)
    remove_unfinished(folder)


def unfinished_weights(folder: Path, record: Record) -> list[Path]:
    """The weights of a record that a killed process left in its training folder, before it moved them to `folder`."""
    found = [file for place in unfinished_folders(folder) for file in place.rglob(WEIGHTS)]
    return [file for file in found if record.weights and stated_digest(file) == record.weights_digest]
