"""The same random numbers in an epoch, whether or not the run was interrupted before this epoch."""

import lightning.pytorch as L
import torch
from lightning.pytorch.callbacks import Callback

from experiments.data.randomness import sample_seeds


class ReseedEachEpoch(Callback):
    """Seeds torch, NumPy and Python at the start of an epoch, by (seed, epoch, process)."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        process = torch.tensor([trainer.global_rank])
        epoch_seed = int(sample_seeds(self.seed, trainer.current_epoch, process)) % 2**32
        L.seed_everything(epoch_seed, verbose=False)
