"""Checkpoints at the end of epochs. A checkpoint file is complete or absent, and it holds only data, never code."""

import sys
import time
from pathlib import Path
from typing import Any

import lightning.pytorch as L
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from experiments.checkpoint_files import DamagedFileError, check_digest, load_checkpoint, save_checkpoint
from experiments.files import remove


class AtomicCheckpointIO(TorchCheckpointIO):
    """Lightning's checkpoint files, written and read by `experiments.checkpoint_files`."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        save_checkpoint(checkpoint, Path(path))

    def load_checkpoint(
        self, path: str | Path, map_location: Any = None, weights_only: bool | None = True
    ) -> dict[str, Any]:
        return load_checkpoint(Path(path), map_location)


def finished_epochs(last: Path, best: Path | None) -> int | None:
    """The number of epochs that the checkpoint `last` has finished; None if the run must start anew.

    If `last` is damaged, or if the weights of the best epoch are damaged or missing, the function prints a warning and
    renames `last` to damaged.ckpt.
    """
    if not last.exists():
        return None
    try:
        if best is not None:
            check_digest(best)
        return int(load_checkpoint(last)["epoch"]) + 1
    except (DamagedFileError, FileNotFoundError) as error:
        if rank_zero_only.rank == 0:
            damaged = last.with_name("damaged.ckpt")  # always the same name, so that damaged files do not pile up
            remove(damaged)
            last.rename(damaged)
            print(f"{error}; {last} is now {damaged.name}, and the run begins anew", file=sys.stderr)
        return None


class BestWeights(ModelCheckpoint):
    """Keeps in `file` the weights of the epoch with the largest value of the metric `monitor` so far."""

    state_key = "BestWeights"  # Lightning reads the key several times a step; ModelCheckpoint builds its key slowly

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
    """Writes a checkpoint to `file` at the end of an epoch and replaces the previous checkpoint.

    At least `seconds` pass between two checkpoints, because writing one takes longer than a short epoch.
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
        # Without it, a run that stopped early and was then killed would train another epoch.
        checkpoint["stopped"] = trainer.should_stop

    def on_load_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        trainer.should_stop = checkpoint["stopped"]
