"""Blocks of training steps as a run takes them, and of translations, for `overhead` to time."""

import math
import threading
import time
from pathlib import Path

import lightning.pytorch as L
import torch
from lightning.pytorch.callbacks import Callback

from benchmarks.harness import Step
from experiments.callbacks.checkpoints import PeriodicCheckpoint
from experiments.data.base import SplitDataModule
from experiments.data.special_tokens import FIRST
from experiments.modules.translator import Translator
from experiments.settings import RunSettings
from experiments.trainer import build_trainer


def our_translations(module: L.LightningModule, data: SplitDataModule) -> Step:
    """Beam search for one batch of dev, to the limit of every sentence."""
    assert isinstance(module, Translator)
    batch = next(iter(data.val_dataloader()[0]))
    module.training_step(batch, 0)  # the first training step sets the threshold of α-ReLU
    with torch.no_grad():
        module.network.output_bias[:FIRST] = -1e4  # so that every translation goes on to its limit
    module.eval()

    def block() -> None:
        module.translate(batch.inputs)

    return block


class _Turns(Callback):
    """Lets each training epoch wait until it is its turn."""

    def __init__(self) -> None:
        self.begin, self.ended = threading.Event(), threading.Event()

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        while not self.begin.wait(timeout=0.5):
            if not threading.main_thread().is_alive():
                raise SystemExit  # ends this thread alone
        self.begin.clear()

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.ended.set()

    def block(self) -> None:
        self.ended.clear()
        self.begin.set()
        self.ended.wait()


def our_loop(settings: RunSettings, module: L.LightningModule, data: SplitDataModule, steps: int) -> Step:
    """A block of steps as a run takes them: an epoch of Trainer.fit, which goes on in a thread from turn to turn."""
    options = {"max_epochs": -1, "limit_train_batches": steps}
    turns, checkpoint = _Turns(), PeriodicCheckpoint(Path(), math.inf)  # which is never written
    trainer = build_trainer(settings.trainer | options, settings.threads, [turns, checkpoint])
    trainer.limit_val_batches = 0  # nothing is measured between blocks
    threading.Thread(target=trainer.fit, args=(module, data)).start()
    return turns.block


def seconds_per_step(block: Step, steps: int) -> float:
    start = time.perf_counter()
    block()
    return (time.perf_counter() - start) / steps
