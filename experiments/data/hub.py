"""Data sets of the Hugging Face hub, and parquet files as it has them."""

from pathlib import Path
from typing import Any

from experiments.errors import DataError


def load_from_hub(name: str, split: str, remedy: str, **options: Any) -> Any:
    """A split of a data set on the hub, as a table of the `datasets` package.

    Args:
        name: of the data set, or of a format whose `data_files` are given.
        split: of the data set.
        remedy: the remedy if the data set cannot be loaded, for the message.
        **options: further arguments of `datasets.load_dataset`.

    Raises:
        DataError: it cannot be loaded; ends with the remedy.
    """
    try:
        from datasets import load_dataset

        return load_dataset(name, split=split, **options)
    except Exception as error:  # the hub's client raises errors of several libraries that share no base class
        place = ", ".join(options.get("data_files", {split: name}).values())
        raise DataError(f"{place} cannot be loaded from the Hugging Face hub ({error}); {remedy}") from error


def load_parquet(file: Path, remedy: str) -> Any:
    """A parquet file as a table of the `datasets` package; raises as `load_from_hub`."""
    try:
        from datasets import Dataset
        from pyarrow import parquet

        return Dataset(parquet.read_table(file))
    except Exception as error:  # errors of several libraries share no base class
        raise DataError(f"{file}: cannot be read ({error}); {remedy}") from error
