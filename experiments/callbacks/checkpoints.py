"""Checkpoint files that are whole or absent, and hold data alone."""

from pathlib import Path
from typing import Any

import torch
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
