"""Data sets of the Hugging Face hub."""

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
