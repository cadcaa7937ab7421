"""One row an epoch: kept in the checkpoint, so that a resumed run neither loses nor doubles any."""

import math
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.errors import DivergedError
from experiments.files import write_atomically

STEPS = "steps"  # of the optimizer so far
EXAMPLES_PER_SECOND = "examples_per_second"  # while training
TRAINING_SECONDS = "training_seconds"  # so far, without measuring
DECODING_SECONDS = "decoding_seconds"  # of the epoch's translations
TIMING = (EXAMPLES_PER_SECOND, TRAINING_SECONDS, DECODING_SECONDS)  # the columns that a repeated run does not repeat


class EpochCurves:
    """Collects the epochs' rows and keeps a CSV file of them.

    Args:
        file: the CSV file, rewritten whole after each epoch; None keeps none.

    Attributes:
        rows: for each finished epoch its number, learning rate, speed, entropy parameters and `split/metric` values.
        seconds: time spent training and measuring, over all of the run's processes.
    """

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self.rows: list[dict[str, float]] = []
        self.seconds = 0.0

    def add(self, row: dict[str, float], seconds: float) -> None:
        """Keep an epoch's row and the time it took.

        Raises:
            DivergedError: one of its values is not a finite number.
        """
        if lost := [name for name, value in row.items() if not math.isfinite(value)]:
            raise DivergedError(
                f"after epoch {row['epoch']}, {lost[0]} is {row[lost[0]]}: the training has diverged; "
                "a lower optimizer.learning_rate may help"
            )
        self.rows.append(row)
        self.seconds += seconds
        if self.file is not None:
            write_atomically(self.file, pd.DataFrame(self.rows).to_csv(index=False))

    def total(self, column: str) -> float:
        """What a column that adds up has come to."""
        return self.rows[-1][column] if self.rows else 0

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self.rows, "seconds": self.seconds}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rows, self.seconds = state["rows"], state["seconds"]
