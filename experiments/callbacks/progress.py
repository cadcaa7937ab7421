"""What a run prints: a first line, then a bar or one line an epoch, and after an interrupt how to continue."""

import signal
import threading
from pathlib import Path

import lightning.pytorch as L
from lightning.fabric.plugins.environments import SLURMEnvironment
from lightning.pytorch.callbacks import Callback, Checkpoint, RichProgressBar
from rich.console import Console

from experiments.callbacks.curves import Curves
from experiments.checkpoint_files import load_checkpoint
from experiments.data.base import SplitDataModule
from experiments.modules.base import OutputModule
from experiments.settings import ActivationSettings, RunSettings

SIZES = ("train_size", "validation_size", "dev_size", "test_size")
ENTROPY_PARAMETERS = ("alpha", "q", "r", "tau")


def console() -> Console:
    return Console(highlight=False, soft_wrap=True)


def progress_callbacks(progress: str, curves: Curves, prefix: str) -> list[Callback]:
    """The callbacks for the setting `progress`; `auto` is a bar in a terminal, and lines elsewhere and in a sweep."""
    if progress == "auto":
        progress = "bar" if console().is_terminal and not prefix else "lines"
    if progress == "bar":
        return [RichProgressBar(refresh_rate=10)]
    return [EpochLines(curves, prefix)] if progress == "lines" else []


def say_start(
    settings: RunSettings, data: SplitDataModule, trainer: L.Trainer, folder: Path, done: int | None, prefix: str
) -> None:
    """Print which run starts, and from which epoch if some epochs are `done`."""
    facts, device = data.data.facts, trainer.strategy.root_device.type
    sizes = [f"{name.removesuffix('_size')} {facts[name]:,}" for name in facts if name in SIZES]
    devices = device if trainer.world_size == 1 else f"{trainer.world_size} × {device}"
    title = f"{settings.name}, {described(settings.activation)}, seed {settings.seed}"
    parts = [f"{prefix}[bold]{title}[/]", ", ".join(sizes), devices, str(folder)]
    if done is not None:
        parts.append(f"[yellow]goes on from epoch {done + 1}[/]")
    console().print("; ".join(parts))


def described(activation: ActivationSettings) -> str:
    """The activation's name and parameters."""
    return " ".join([activation.name, *(f"{name}={value}" for name, value in activation.arguments().items())])


class EpochLines(Checkpoint):
    """Prints one plain line an epoch. It is a `Checkpoint`, so Lightning calls it after `Curves` has added its row."""

    def __init__(self, curves: Curves, prefix: str = "") -> None:
        self.curves, self.prefix = curves, prefix

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: OutputModule) -> None:
        if trainer.is_global_zero:
            console().print(self.prefix + epoch_line(self.curves, trainer.max_epochs, pl_module.headline))


def epoch_line(curves: Curves, epochs: int | None, headline: str) -> str:
    """The last epoch in a line, as "epoch 3/50  loss 2.31  test accuracy 0.312  sparsity 0.72  q 1.41  1:42"."""
    row = curves.rows[-1]
    split = next((split for split in ("validation", "dev") if f"{split}/{headline}" in row), "test")
    shown = [
        ("loss", "train/loss", ".3g"),
        (f"{split} {headline}", f"{split}/{headline}", ".3f"),
        ("sparsity", f"{split}/sparsity", ".2f"),
        *((name, name, ".2f") for name in ENTROPY_PARAMETERS),
    ]
    numbers = [f"{label} {row[key]:{form}}" for label, key, form in shown if key in row]
    minutes, seconds = divmod(round(curves.seconds), 60)
    of = f"/{epochs}" if epochs else ""
    return "  ".join([f"epoch {row['epoch']}{of}", *numbers, f"{minutes}:{seconds:02d}"])


class Termination(Callback):
    """Continues to train after SLURM's SIGTERM, until SLURM kills the job. Without SLURM, SIGTERM is unchanged."""

    def __init__(self) -> None:
        self._before = signal.getsignal(signal.SIGTERM)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        # SLURM sends SIGTERM some time before it ends the job and queues it again. If the process ends within this
        # time, SLURM counts the job as finished and does not queue it again. Lightning restores the old handlers.
        if SLURMEnvironment.detect():
            signal.signal(
                signal.SIGTERM, lambda *_: console().print("SLURM is about to end this job; trains on until then")
            )
        elif callable(self._before):  # Lightning's handler would wait for the other processes, which wait for this one
            signal.signal(signal.SIGTERM, self._before)


def how_it_goes_on(last: Path, settings: RunSettings, beside: bool) -> str:
    """How an interrupted run continues: after the epochs of the checkpoint `last`, if this file exists.

    `beside` says whether the interrupted run was to replace a finished run.
    """
    if beside:
        return "the finished run is as it was, and the same command repeats it from the start"
    command = f"the same command{' without force=true' if settings.force else ''}"
    if not last.exists():
        return f"{command} begins anew, for there is no checkpoint yet"
    done = load_checkpoint(last)["epoch"] + 1
    if done == settings.trainer.get("max_epochs"):
        return f"{command} finishes the run, for all {done} epochs are trained"
    return f"{command} goes on from epoch {done + 1}"
