"""Checkpoints at the end of epochs. A checkpoint file is complete or absent, and it holds only data, never code."""

import math
import time
import zipfile
from pathlib import Path
from typing import Any

import lightning.pytorch as L
import torch
from lightning.pytorch.callbacks import Checkpoint, ModelCheckpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO

from experiments.callbacks.curves import Curves
from experiments.files import check_file, replace_atomically
from experiments.modules.base import OutputModule


class AtomicCheckpointIO(TorchCheckpointIO):
    """Lightning's checkpoint files; after an error or a kill while one is written, the old file is unchanged."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        replace_atomically(Path(path), lambda file: torch.save(checkpoint, file))


def finished_epochs(last: Path, best: Path | None = None) -> int:
    """The number of epochs in the checkpoint `last`; 0 if it, or the best epoch's weights, are missing or damaged."""
    if not all(_is_whole(file) for file in (last, best) if file is not None):
        return 0
    return int(torch.load(last, map_location="cpu", weights_only=True)["epoch"]) + 1


def _is_whole(file: Path) -> bool:
    try:
        check_file(file)
        with zipfile.ZipFile(file) as opened:
            return opened.testzip() is None
    except Exception:  # zipfile has a kind of error for each kind of damage
        return False


class BestWeights(Checkpoint):
    """Keeps in `file` the weights of the epoch that a module selects (`selected_by`) among the rows of `curves`."""

    def __init__(self, file: Path, curves: Curves) -> None:
        self.file, self.curves = file, curves

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: OutputModule) -> None:
        if pl_module.selected_by is None or trainer.fast_dev_run:
            return
        *before, last = (row.get(pl_module.selected_by, -math.inf) for row in self.curves.rows)
        if last > max(before, default=-math.inf):
            trainer.save_checkpoint(self.file, weights_only=True)


class PeriodicCheckpoint(ModelCheckpoint):
    """Writes a checkpoint into `folder` at the end of an epoch and replaces the previous checkpoint.

    Set its `filename`, without the ending, before the training. At least `seconds` pass between two checkpoints,
    because writing one takes longer than a short epoch.
    """

    state_key = "PeriodicCheckpoint"  # Lightning reads it several times a step; ModelCheckpoint builds its key slowly

    def __init__(self, folder: Path, seconds: float) -> None:
        super().__init__(folder, save_on_train_epoch_end=True, enable_version_counter=False)
        self.seconds = seconds
        self._saved_at = time.monotonic()

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.strategy.broadcast(time.monotonic() - self._saved_at >= self.seconds):
            super().on_train_epoch_end(trainer, pl_module)
            self._saved_at = time.monotonic()

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        # Without it, a run that stopped early and was then killed would train another epoch.
        checkpoint["stopped"] = trainer.should_stop

    def on_load_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        trainer.should_stop = checkpoint["stopped"]
