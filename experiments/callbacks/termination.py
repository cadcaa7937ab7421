"""SIGTERM during a training."""

import signal
from collections.abc import Callable

import lightning.pytorch as L
from lightning.fabric.plugins.environments import SLURMEnvironment
from lightning.pytorch.callbacks import Callback


class Termination(Callback):
    """Continues to train after SLURM's SIGTERM, until SLURM kills the job. Without SLURM, SIGTERM ends the run.

    SLURM sends SIGTERM some time before it ends the job and queues it again. If the process ends within this time,
    SLURM counts the job as finished and does not queue it again.
    """

    def __init__(self, say: Callable[[str], object]) -> None:
        self.say = say
        self._before = signal.getsignal(signal.SIGTERM)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if SLURMEnvironment.detect():  # Lightning restores the old handlers
            signal.signal(signal.SIGTERM, lambda *_: self.say("SLURM is about to end this job; trains on until then"))
        elif callable(self._before):  # Lightning's handler would wait for the other processes, which wait for this one
            signal.signal(signal.SIGTERM, self._before)
