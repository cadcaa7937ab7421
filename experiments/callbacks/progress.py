"""One line of progress an epoch, in a terminal and in a file alike."""

import time

import lightning.pytorch as L
from lightning.pytorch.callbacks import Checkpoint
from rich.cells import cell_len
from rich.console import Console
from rich.control import Control
from rich.segment import ControlType
from rich.text import Text

from experiments.callbacks.curves import Curves
from experiments.durations import duration
from experiments.modules.base import OutputModule
from experiments.settings import ActivationSettings

PARAMETERS = ("alpha", "q", "r", "tau")
WIDTH = 10  # columns of the bar
REDRAWN_SECONDS = 0.2


def described(activation: ActivationSettings) -> str:
    """The activation's name, its orders, and how it learns them unless by the Fenchel–Young loss."""
    orders = {name: getattr(activation, name) for name in PARAMETERS}
    shown = [f"{name}={value:g}" for name, value in orders.items() if value is not None]
    if activation.temperature not in (None, 1):
        shown.append(f"temperature={activation.temperature:g}")
    if activation.objective not in (None, "fenchel_young"):
        shown.append(activation.objective)
    return " ".join([activation.name, *shown])


class Progress(Checkpoint):
    """Prints `epoch 4/10 ━━━━────── loss 0.200 accuracy 0.774 sparsity 0.14 q 1.56 r 1.81 · 6 s left`.

    The bar and the time left are of the whole run. Each line begins with `line_prefix`. `progress` is `bar` to move the
    line within an epoch too, `lines` not to, or `auto` to do so in a terminal, where a line that is too long loses the
    bar, and then its last numbers. The callback is a `Checkpoint`, so Lightning calls it after `Curves` has added its
    row.
    """

    def __init__(self, curves: Curves, console: Console, line_prefix: str, progress: str) -> None:
        self.curves, self.console, self.line_prefix = curves, console, line_prefix
        self.moves = progress == "bar" or (progress == "auto" and console.is_terminal and not line_prefix)
        self._done, self._rest, self._dot = "━─·" if console.encoding.startswith("utf") else "=-;"
        self._drawn_at = 0.0

    def on_train_start(self, trainer: L.Trainer, pl_module: OutputModule) -> None:
        self._began, self._epochs_before = time.monotonic(), trainer.current_epoch

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: OutputModule, *_: object) -> None:
        if self.moves and time.monotonic() - self._drawn_at > REDRAWN_SECONDS:
            self._draw(trainer, pl_module, end="\r")

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: OutputModule) -> None:
        self._draw(trainer, pl_module, end="\n")

    def on_exception(self, trainer: L.Trainer, pl_module: OutputModule, exception: BaseException) -> None:
        self._erase()

    def _erase(self) -> None:
        """Clear what a moving line left, for what is printed next."""
        if self.moves:
            self.console.control(Control((ControlType.ERASE_IN_LINE, 2), ControlType.CARRIAGE_RETURN))

    def _draw(self, trainer: L.Trainer, module: OutputModule, end: str) -> None:
        self._drawn_at, share = time.monotonic(), self._share(trainer)
        self._erase()
        epoch, bar, left = f"epoch {trainer.current_epoch + 1}", "", ""
        shown = numbers(self.curves.rows[-1], module.headline) if self.curves.rows else []
        if share is not None:
            filled = round(share * WIDTH)
            epoch, bar = f"{epoch}/{trainer.max_epochs}", self._done * filled + self._rest * (WIDTH - filled)
            if (trained := share - self._epochs_before / trainer.max_epochs) > 0:
                left = f"{self._dot} {duration((self._drawn_at - self._began) / trained * (1 - share))} left"
        self.console.print(Text(self._fitted(epoch, bar, shown, left)), end=end)

    def _fitted(self, epoch: str, bar: str, shown: list[str], left: str) -> str:
        """The line, in a terminal no longer than a row of it, which would otherwise scroll."""
        while True:
            line = self.line_prefix + " ".join(filter(None, [epoch, bar, *shown, left]))
            if not self.console.is_terminal or cell_len(line) < self.console.width or not (bar or shown):
                return line
            bar, shown = "", shown if bar else shown[:-1]

    def _share(self, trainer: L.Trainer) -> float | None:
        """The share of the run's batches that are trained; None if the run has no last epoch."""
        if not trainer.max_epochs or trainer.max_epochs < 0:
            return None
        progress = trainer.fit_loop.epoch_loop.batch_progress.current.ready / max(1, trainer.num_training_batches)
        return min(1.0, (trainer.current_epoch + min(1.0, progress)) / trainer.max_epochs)


def numbers(row: dict[str, float], headline: str) -> list[str]:
    """The main numbers of an epoch, as "loss 0.200", "accuracy 0.774"; of the validation split where there is one."""
    split = next((split for split in ("validation", "dev") if f"{split}/{headline}" in row), "test")
    shown = [
        ("loss", "train/loss", ".3f"),
        (headline, f"{split}/{headline}", ".3f"),
        ("sparsity", f"{split}/sparsity", ".2f"),
        *((name, name, ".2f") for name in PARAMETERS),
    ]
    return [f"{label} {row[key]:{form}}" for label, key, form in shown if key in row]
