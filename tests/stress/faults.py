"""Faults that are planted in the processes of trials."""

from pathlib import Path
from typing import Any

from experiments import training
from experiments.data import base


def remove_the_old_record() -> None:
    """force=true removes the old record before there is a new one."""
    train = training.train

    def removing(settings: Any, folder: Path, prefix: str) -> Any:
        (folder / "record.json").unlink(missing_ok=True)
        return train(settings, folder, prefix)

    training.train = removing


def hash_nothing() -> None:
    """All data have the same hash."""
    base.content_hash = lambda *_: "0" * 64
