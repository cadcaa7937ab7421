"""One row an epoch: kept in the checkpoint, so that a resumed run neither loses nor doubles any."""

import math
import time
from pathlib import Path
from typing import Any

import lightning as L
import pandas as pd

from experiments.classifier import Classifier
from experiments.errors import DivergedError
from experiments.files import write_atomically


class EpochCurves(L.Callback):
    """Collects the epochs' metrics, writes them to a CSV file and passes them to the logger.

    Args:
        file: the CSV file, rewritten whole after each epoch.

    Attributes:
        rows: for each finished epoch its number, entropy parameters and `split/metric` values.
        seconds: time spent training and measuring, over all of the run's processes.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.rows: list[dict[str, float]] = []
        self.seconds = 0.0
        self._since = time.perf_counter()

    def on_fit_start(self, trainer: L.Trainer, classifier: L.LightningModule) -> None:
        self._since = time.perf_counter()
        for row in self.rows:  # the logger starts anew with each process
            self._log(trainer, row)

    def on_validation_end(self, trainer: L.Trainer, classifier: L.LightningModule) -> None:
        assert isinstance(classifier, Classifier)
        measured = classifier.epoch_metrics()
        splits = {f"{split}/{name}": value for split, metrics in measured.items() for name, value in metrics.items()}
        row = {"epoch": trainer.current_epoch + 1, **classifier.entropy_values(), **splits}
        if lost := [name for name, value in row.items() if not math.isfinite(value)]:
            raise DivergedError(
                f"after epoch {row['epoch']}, {lost[0]} is {row[lost[0]]}: the training has diverged; "
                "a lower optimizer.learning_rate may help"
            )
        self.rows.append(row)
        now = time.perf_counter()
        self.seconds += now - self._since
        self._since = now
        write_atomically(self.file, pd.DataFrame(self.rows).to_csv(index=False))
        self._log(trainer, row)

    def _log(self, trainer: L.Trainer, row: dict[str, float]) -> None:
        values = {name: value for name, value in row.items() if name != "epoch"}
        for logger in trainer.loggers:
            logger.log_metrics(values, step=int(row["epoch"]))

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self.rows, "seconds": self.seconds}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rows, self.seconds = state["rows"], state["seconds"]
