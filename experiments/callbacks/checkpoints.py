"""Checkpoints at the end of epochs; their files are whole or absent, and hold data alone."""

import time
from pathlib import Path
from typing import Any

import lightning.pytorch as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO

from experiments.files import replace_atomically


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes to a temporary file and renames it; loads tensors and plain values only, never code."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        replace_atomically(Path(path), lambda file: torch.save(checkpoint, file))

    def load_checkpoint(
        self, path: str | Path, map_location: Any = None, weights_only: bool | None = True
    ) -> dict[str, Any]:
        checkpoint: dict[str, Any] = torch.load(path, map_location=map_location, weights_only=True)
        return checkpoint


class PeriodicCheckpoint(ModelCheckpoint):
    """A checkpoint at the end of an epoch, in place of the one before.

    Args:
        file: the checkpoint.
        seconds: how long to wait at least after a checkpoint, for writing takes longer than a short epoch.
    """

    def __init__(self, file: Path, seconds: float) -> None:
        super().__init__(file.parent, file.stem, save_on_train_epoch_end=True, enable_version_counter=False)
        self.seconds = seconds
        self._saved_at = time.monotonic()

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.strategy.broadcast(time.monotonic() - self._saved_at >= self.seconds):
            super().on_train_epoch_end(trainer, pl_module)
            self._saved_at = time.monotonic()
