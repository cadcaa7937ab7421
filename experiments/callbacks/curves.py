"""One row of numbers for each epoch. The checkpoint holds the rows, so a resumed run neither loses nor repeats one."""

import csv
import io
import math
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import lightning.pytorch as L
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.loggers import Logger

from experiments.data.examples import Batch
from experiments.errors import DivergedError
from experiments.files import write_atomically
from experiments.record import RecordError, out_of_range

STEPS = "steps"  # of the optimizer so far
EXAMPLES_PER_SECOND = "examples_per_second"  # while training
TRAINING_SECONDS = "training_seconds"  # so far, without measuring


class Curves(Checkpoint):
    """Collects a row at the end of each epoch: its number, steps, learning rate, speed and all values logged.

    It is a `Checkpoint` so that Lightning calls it after the module has logged its metrics. The rows are written to a
    CSV `file`, if one is given, with each checkpoint and at the end.
    """

    def __init__(self, file: Path | None = None) -> None:
        self.file = file
        self.rows: list[dict[str, float]] = []
        self.seconds = 0.0  # training and measuring, over all processes that the run was resumed in
        self._examples = 0
        self._measured_at = -1  # step of the last measuring
        self._epoch_began = self._training_ended = 0.0

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        for row in self.rows:  # in each new process a logger starts empty
            log_row(trainer.loggers, row)

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._examples = 0
        self._epoch_began = time.perf_counter()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        self._examples += len(batch.targets)
        self._training_ended = time.perf_counter()
        if 0 <= trainer.max_steps <= trainer.global_step:
            trainer.should_stop = True  # otherwise Lightning ends in the middle of the epoch, and measures nothing

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._measured_at = trainer.global_step

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        seconds = self._training_ended - self._epoch_began
        before = self.rows[-1][TRAINING_SECONDS] if self.rows else 0.0
        measured = {name: value.item() for name, value in trainer.callback_metrics.items()}
        if self._measured_at != trainer.global_step:  # Lightning still holds the numbers of the previous epoch
            measured = {name: value for name, value in measured.items() if "/" not in name}
        row = {
            "epoch": trainer.current_epoch + 1,
            STEPS: trainer.global_step,
            "learning_rate": trainer.optimizers[0].param_groups[0]["lr"],
            EXAMPLES_PER_SECOND: self._examples * trainer.world_size / seconds,
            TRAINING_SECONDS: before + seconds,
            **measured,
        }
        if lost := [name for name, value in row.items() if not math.isfinite(value)]:
            name = min(lost, key=lambda name: not name.endswith("/loss"))  # a loss before the metrics that follow it
            diverged = "the training has diverged; a lower optimizer.learning_rate may help"
            reason = diverged if name.endswith("/loss") else "a metric must be a finite number"
            raise DivergedError(f"after epoch {row['epoch']}, {name} is {row[name]}: {reason}")
        if problem := out_of_range(row):  # now, because at the end of the training the whole record would be rejected
            raise RecordError(f"after epoch {row['epoch']}, {problem}; measure it so, or give the metric another name")
        self.rows.append(row)
        self.seconds += time.perf_counter() - self._epoch_began
        log_row(trainer.loggers, {name: value for name, value in row.items() if name not in measured})

    def on_train_end(self, trainer: L.Trainer, *_: object) -> None:
        if self.file is None or not self.rows or trainer.fast_dev_run:
            return
        text, columns = io.StringIO(), dict.fromkeys(name for row in self.rows for name in row)
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        write_atomically(self.file, text.getvalue())

    on_save_checkpoint = on_train_end

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self.rows, "seconds": self.seconds}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rows, self.seconds = state["rows"], state["seconds"]


def log_row(loggers: Iterable[Logger], row: dict[str, float]) -> None:
    """Pass a row to the loggers. Like Lightning, it counts epochs and steps from 0."""
    values = {name: value for name, value in row.items() if name != STEPS} | {"epoch": row["epoch"] - 1}
    for logger in loggers:
        logger.log_metrics(values, step=int(row.get(STEPS, row["epoch"])) - 1)
