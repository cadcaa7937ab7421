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


class BestWeights(ModelCheckpoint):
    """The weights in `file` are those of the epoch with the largest value of the metric `monitor` so far."""

    state_key = "BestWeights"  # Lightning asks for it several times a step; ModelCheckpoint's takes time to build

    def __init__(self, file: Path, monitor: str) -> None:
        files = {"save_on_train_epoch_end": True, "enable_version_counter": False}
        super().__init__(file.parent, file.stem, monitor=monitor, mode="max", save_weights_only=True, **files)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        def here(path: str) -> str:  # the run's folder may have been moved
            return str(Path(self.dirpath, Path(path).name)) if path else path

        paths = {name: here(path) for name, path in state_dict.items() if name.endswith("_path")}
        models = {here(path): score for path, score in state_dict["best_k_models"].items()}
        super().load_state_dict(state_dict | paths | {"dirpath": self.dirpath, "best_k_models": models})


class PeriodicCheckpoint(ModelCheckpoint):
    """A checkpoint in `file` at the end of an epoch, in place of the one before.

    It waits at least some `seconds` after a checkpoint, for writing takes longer than a short epoch.
    """

    state_key = "PeriodicCheckpoint"  # as for BestWeights

    def __init__(self, file: Path, seconds: float) -> None:
        super().__init__(file.parent, file.stem, save_on_train_epoch_end=True, enable_version_counter=False)
        self.seconds = seconds
        self._saved_at = time.monotonic()

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.strategy.broadcast(time.monotonic() - self._saved_at >= self.seconds):
            super().on_train_epoch_end(trainer, pl_module)
            self._saved_at = time.monotonic()

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        # A run that is killed after it has stopped early would else train another epoch.
        checkpoint["stopped"] = trainer.should_stop

    def on_load_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        trainer.should_stop = checkpoint["stopped"]
