"""Loads a finished run from its folder."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.checkpoint_files import DamagedFileError, load_checkpoint, stated_digest
from experiments.errors import ConfigurationError, DataError
from experiments.record import Record
from experiments.run_folder import RECORD, WEIGHTS, record_of, unfinished_weights
from experiments.settings import checked_settings

if TYPE_CHECKING:
    from experiments.data.base import SplitDataModule
    from experiments.modules.base import OutputModule


def load_run(folder: str | Path, data_folder: str | Path | None = None) -> "tuple[OutputModule, SplitDataModule]":
    """A finished run: its module with the weights of the reported epoch, ready to predict, and its data.

    The record names the classes that are built, so load only records that you trust.

    Args:
        folder: of the run, with its record and weights.
        data_folder: folder that holds the data sets, in place of the run's `paths.data`.

    Raises:
        ConfigurationError: the folder holds no finished run, no weights, damaged weights or weights of other code.
        DataError: the data set cannot be loaded, or differs from the run's data set.
    """
    if not (Path(folder) / RECORD).is_file():
        raise ConfigurationError(f"{folder}: there is no {RECORD}; give the folder of a finished run")
    record = record_of(Path(folder))
    weights = _weights(Path(folder), record)
    settings = checked_settings(record.config)
    if data_folder is not None:
        if "folder" not in settings.data:
            raise ConfigurationError(f"data={data_folder}: the data set of {folder} does not lie in a folder")
        settings = settings.model_copy(update={"data": settings.data | {"folder": str(data_folder)}})

    from experiments.training import build_run

    module, data = build_run(settings)
    if "content_hash" not in record.data:
        raise DataError(
            f"{folder}: its record is of an earlier version, which did not hash the contents of the data, so that "
            "nobody knows whether they are the same; repeat the run with force=true"
        )
    if data.data.content_hash != record.data["content_hash"]:
        raise DataError(f"{folder}: its data set has changed since; restore the files that the run was trained on")
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        raise ConfigurationError(
            f"{Path(folder, WEIGHTS)}: the weights are of other code; repeat the run with force=true"
        ) from error
    return module.eval(), data


def _weights(folder: Path, record: Record) -> dict[str, Any]:
    """The parameters and buffers of a finished run, from the file whose digest is in the record."""
    file = next(iter(unfinished_weights(folder, record)), folder / WEIGHTS)
    if record.weights is None or not file.is_file():
        raise ConfigurationError(f"{folder}: there is no {WEIGHTS}; repeat the run with keep_weights=true force=true")
    try:
        weights: dict[str, Any] = load_checkpoint(file)["state_dict"]
    except (DamagedFileError, KeyError) as error:
        raise ConfigurationError(f"{error}; repeat the run with force=true") from error
    if stated_digest(file) != record.weights_digest:
        raise ConfigurationError(
            f"{file}: these are not the weights of {folder / RECORD}; repeat the run with force=true"
        )
    return weights
