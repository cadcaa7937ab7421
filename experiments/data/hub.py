"""Data sets of the Hugging Face hub, and parquet files as it has them."""

from pathlib import Path
from typing import Any

from experiments.errors import reading
from experiments.files import check_file

EncodedImage = tuple[bytes, int, str]  # its content, the number of its class, and its place, for messages


def load_from_hub(name: str, split: str, remedy: str, **options: Any) -> Any:
    """A split of a data set on the hub, as a table of the `datasets` package; a DataError if it cannot be loaded.

    `name` is of the data set, or of a format whose `data_files` are given. `remedy` is the end of the error's message.
    `options` are further arguments of `datasets.load_dataset`.
    """
    with reading(f"{options.get('data_files', {split: name})[split]} on the Hugging Face hub", remedy):
        from datasets import load_dataset

        return load_dataset(name, split=split, **options)


def load_images(
    folder: Path | None, name: str, split: str, image: str, label: str, remedy: str
) -> tuple[list[EncodedImage], list[str], str]:
    """Encoded images from a parquet file, or from the hub without a folder; the names of their classes; their place.

    `image` and `label` name the columns of the images and of their class numbers; for the rest see `load_from_hub`.
    """
    from datasets import Dataset, Image
    from pyarrow import parquet

    if folder is None:
        table, place = load_from_hub(name, split, remedy), f"{name} on the Hugging Face hub"
    else:
        file = parquet_file(folder, split)
        place = str(file)
        with reading(place, remedy):
            check_file(file)
            table = Dataset(parquet.read_table(file)).select_columns([image, label])
    encoded = table.cast_column(image, Image(decode=False))[image][:]
    rows = zip(encoded, table[label], strict=True)
    images = [(one["bytes"], own, f"{place}, {split}, row {number}") for number, (one, own) in enumerate(rows)]
    return images, getattr(table.features[label], "names", []), place


def parquet_file(folder: Path, split: str) -> Path:
    """The file of a split, by our name or by the hub's; the first of our names if there is none."""
    names = f"{split}.parquet", f"{split}-00000-of-00001*.parquet"
    places = folder, folder / "data", folder / folder.name  # as copies of the hub's repositories have them
    found = (file for place in places for name in names for file in sorted(place.glob(name)))
    return next(found, folder / names[0])
