"""The runs of one configuration over seeds, and all their measured numbers as one table."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from experiments.record import Record, RecordError
from reporting.records.declaration import ORDERS


@dataclass(frozen=True)
class Runs:
    """The runs of one configuration, with a record for each seed."""

    records: tuple[Record, ...] = ()

    def __len__(self) -> int:
        return len(self.records)

    @property
    def activation(self) -> dict[str, Any]:
        """The `config.activation` that all of the runs share."""
        activation: dict[str, Any] = self.records[0].config["activation"]
        return activation

    @cached_property
    def measured(self) -> pd.DataFrame:
        """All numbers of the curves: one line for each seed and epoch, one column for each "split/metric"."""
        lines = [{"seed": record.seed, **row} for record in self.records for row in record.curves]
        return pd.DataFrame(lines, columns=None if lines else ["seed", "epoch"]).set_index(["seed", "epoch"])

    def at(self, epoch: int | None = None) -> pd.DataFrame:
        """The numbers after one epoch, None for each run's reported epoch: a line for each run that has reached it."""
        reached = [(record.seed, record.epoch if epoch is None else epoch) for record in self.records]
        return self.measured[self.measured.index.isin(reached)].droplevel("epoch")

    def values(self, split: str, metric: str, epoch: int | None = None) -> pd.Series:
        """The values of a metric after one epoch, None for each run's reported epoch, one for each seed.

        Raises:
            RecordError: where a run did not measure the metric on the split.
        """
        prefix = "" if split == ORDERS else f"{split}/"
        lines = self.at(epoch)
        values = lines.get(prefix + metric, pd.Series(index=lines.index, dtype=float)).astype(float)
        for seed in values.index[values.isna()]:
            record = next(record for record in self.records if record.seed == seed)
            names = lines.loc[seed].dropna().index
            measured = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
            raise RecordError(
                f"{record.experiment}: the run run_id={record.run_id} with seed={seed} did not measure {metric!r} on "
                f"{split}; it measured {', '.join(sorted(name for name in measured if '/' not in name))}"
            )
        return values

    def by_epoch(self, column: str) -> pd.DataFrame:
        """A column of `measured`: one line for each epoch and one column for each seed; empty if not measured."""
        if column not in self.measured:
            return pd.DataFrame()
        return self.measured[column].unstack("seed").dropna(how="all")

    def paths(self) -> list[pd.DataFrame]:
        """The path of (q, r) of each seed: a line for each epoch from 0 on, or one line if the orders are fixed.

        An α means q = r = α; under normmax it means q = α and r = 2 − 1/α. A map of another family has no path.
        """
        name = self.activation["name"]
        orders = ["alpha", "alpha"] if self.activation.get("alpha") is not None else ["q", "r"]
        start = [{"softmax": 1.0, "sparsemax": 2.0}.get(name, self.activation.get(order)) for order in orders]
        if name == "alpha_relu" or None in start:
            return []
        paths = []
        for record in self.records:
            learned = {row["epoch"]: [row[order] for order in orders] for row in record.curves if {*orders} <= {*row}}
            paths.append(pd.DataFrame.from_dict({0: start} | learned, orient="index", columns=["q", "r"]))
        return [path.assign(r=2 - 1 / path["q"]) for path in paths] if name == "normmax" else paths
