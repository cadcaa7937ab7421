"""Tables for classification from the files of Python packages, chosen by a rule on their sizes."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits

from experiments.errors import ConfigurationError
from studies.study import Settings


@dataclass(frozen=True)
class Table:
    """A classification task."""

    features: np.ndarray  # float64 [rows, features]; categories are numbered in alphabetical order, missing is NaN
    labels: np.ndarray  # class indices [rows]

    @property
    def sizes(self) -> dict[str, int]:
        rows, features = self.features.shape
        counts = np.bincount(self.labels)
        return {"rows": rows, "features": features, "classes": len(counts), "least_of_a_class": int(counts.min())}


def chosen_tables(settings: Settings) -> dict[str, Table]:
    """The tables whose sizes the rule allows, by name.

    Args:
        settings: `folder`, of the packages; `keel`, the folder of KEEL's files in it; `left_out`, names of KEEL's
            tables to leave out; `files`, other tables; `allowed`, the least and the largest of each size.
    """
    folder = Path(settings["folder"], settings["keel"])
    if not folder.is_dir():
        raise ConfigurationError(
            f"there is no folder {folder}; `make study-boosting` installs the packages of the data"
        )
    keel = [path.stem for path in sorted(folder.glob("*.dat")) if path.stem not in settings["left_out"]]
    tables = {name: read_table(name, settings) for name in (*keel, *settings["files"], "digits")}
    allowed = settings["allowed"].items()
    return {
        name: table
        for name, table in tables.items()
        if all(least <= table.sizes[size] <= largest for size, (least, largest) in allowed)
    }


def read_table(name: str, settings: Settings) -> Table:
    """The table of this name; arguments as for `chosen_tables`."""
    if name == "digits":
        return Table(*load_digits(return_X_y=True))
    folder = Path(settings["folder"])
    if name not in settings["files"]:  # KEEL's files have no header, and the class in the last column
        table = pd.read_csv(folder / settings["keel"] / f"{name}.dat", header=None, skipinitialspace=True)
        return _numbered(table, table.columns[-1])
    described = settings["files"][name]
    path = folder / described["file"]
    table = pd.read_json(path) if path.suffix == ".json" else pd.read_csv(path, sep=described.get("separator", ","))
    return _numbered(table.drop(columns=described.get("left_out", [])), described["target"])


def _numbered(table: pd.DataFrame, target: str | int) -> Table:
    labels = pd.Categorical(table.pop(target)).codes.astype(int)
    for name in table.select_dtypes(exclude="number"):
        codes = pd.Categorical(table[name]).codes
        table[name] = np.where(codes < 0, np.nan, codes)
    return Table(table.to_numpy(float), labels)
