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
    """The record of a finished run; a ConfigurationError names what is wrong with it."""
    try:
        return load_record(folder / RECORD)
    except RecordError as error:
        raise ConfigurationError(str(error)) from error


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints and weights that runs have left in a folder; others may be the user's, and stay."""
    return [file for names in _CHECKPOINTS for file in folder.glob(names)]


def place_beside(folder: Path) -> Path:
    """Where a run trains whose folder holds a finished one: below it, under its last two names, which loggers show."""
    return unfinished_folder(folder) / folder.parent.name / folder.name


def folder_of(place: Path) -> Path:
    """The folder of the run that trains in a place: the place itself, or the one that `place_beside` was given."""
    return place.parents[2] if is_unfinished(place.parents[1]) else place


def finish(folder: Path, place: Path, record: Record) -> None:
    """Write the record of a run and leave nothing but its results.

    A process killed at any moment leaves a finished run before, or this one: the record changes by one rename, with no
    curves beside it that are not its own. Its digest tells its weights from those of the run before, which it replaces
    afterwards; `tidy` does so if this process is killed before.

    Args:
        folder: of the run.
        place: where the files of the training are: `folder`, or a folder below it where there is a finished run.
        record: of the training.
    """

    def write(file: IO[bytes]) -> None:
        file.write(record.to_json(indent=1).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
        if place != folder:
            (folder / CURVES).unlink(missing_ok=True)  # of the run before; `tidy` writes the new ones

    replace_atomically(folder / RECORD, write)
    tidy(folder, record)
    if place != folder:
        for logged in place.iterdir():
            if logged.suffix != ".ckpt":
                remove(folder / logged.name)
                logged.rename(folder / logged.name)


def tidy(folder: Path, record: Record) -> None:
    """Leave the results of a finished run, and nothing else that runs leave before they are killed."""
    with contextlib.suppress(FileNotFoundError):  # another process did so
        for weights in unfinished_weights(folder, record):
            weights.replace(folder / WEIGHTS)
    if not (folder / CURVES).exists():
        write_rows(folder / CURVES, record.curves)
    for checkpoint in checkpoints(folder):
        if checkpoint.name != record.weights:
            remove(checkpoint)
    remove_unfinished(folder)


def unfinished_weights(folder: Path, record: Record) -> list[Path]:
    """The weights of a record that a killed process has left where it trained, beside the run that it replaced."""
    found = [file for place in unfinished_folders(folder) for file in place.rglob(WEIGHTS)]
    return [file for file in found if record.weights and stated_digest(file) == record.weights_digest]
