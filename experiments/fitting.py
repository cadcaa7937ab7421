"""The training loop: epochs of steps, each epoch measured, recorded and kept in a checkpoint."""

import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from lightning.fabric import Fabric
from lightning.pytorch.loggers import Logger
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from experiments.batches import EpochDraws
from experiments.configuration import FEWEST_EXAMPLES, RunSettings, TrainerSettings
from experiments.curves import EXAMPLES_PER_SECOND, STEPS, TRAINING_SECONDS, EpochCurves
from experiments.dataset import Batch
from experiments.errors import ConfigurationError, DataError
from experiments.learner import Learner
from experiments.randomness import sample_seeds
from experiments.schedule import learning_rate_schedule
from experiments.unreadable import Unreadable


class Feed(NamedTuple):
    """This process's batches.

    Attributes:
        draws: what training draws; gets each epoch's number.
        training: the batches of these draws.
        measuring: for each split that is measured after an epoch its batches.
    """

    draws: EpochDraws
    training: Collection[Batch]
    measuring: dict[str, Collection[Batch]]


def fit(
    fabric: Fabric,
    settings: RunSettings,
    learner: Learner,
    feed: Feed,
    curves: EpochCurves,
    loggers: list[Logger],
    checkpoint: Path,
    unreadable: Unreadable,
) -> None:
    """Run the epochs that are left, from the last checkpoint or from the start.

    Args:
        fabric: devices, processes and precision, launched.
        settings: the run.
        learner: what is trained.
        feed: on what.
        curves: gets each epoch's row.
        loggers: get it as well.
        checkpoint: the file kept after every epoch, in place of the one before.
        unreadable: gets the names of examples that cannot be read.

    Raises:
        ConfigurationError: the machines do not share the folder of the checkpoint.
        DataError: too many examples cannot be read.
        DivergedError: the loss is no longer a number.
    """
    trainer = settings.trainer
    plain_optimizer = learner.configure_optimizers()
    schedule = learning_rate_schedule(plain_optimizer, settings.optimizer)
    module, optimizer = fabric.setup(learner, plain_optimizer)
    if trainer.compile:
        learner.model.compile()
    state = {
        "learner": module,
        "optimizer": optimizer,
        "schedule": schedule,
        "precision": fabric.strategy.precision,
        "curves": curves,
        "unreadable": unreadable,
    }
    if fabric.broadcast(checkpoint.exists()):
        if not checkpoint.exists():
            raise ConfigurationError(
                f"{checkpoint} is on the first machine alone; paths.outputs must be a folder that all machines share"
            )
        fabric.load(checkpoint, state, weights_only=True)
    for row in curves.rows:  # a logger starts anew with each process
        _log(loggers, row)

    with progress_bars(settings) as progress:
        for epoch in range(len(curves.rows), trainer.epochs):
            feed.draws.epoch = epoch
            # Whatever training draws, from torch, NumPy or Python, it draws again when a run resumes here.
            own_seed = int(sample_seeds(settings.seed, epoch, torch.tensor([fabric.global_rank]))) % 2**32
            fabric.seed_everything(own_seed, verbose=False)
            since = time.perf_counter()
            title = f"epoch {epoch + 1}/{trainer.epochs}"
            batches = moved(fabric, feed.training, unreadable, progress, title)
            examples, steps = train_epoch(fabric, module, optimizer, schedule, batches, trainer)
            seconds = time.perf_counter() - since
            for split, batches in feed.measuring.items():
                measure(fabric, module, moved(fabric, batches, unreadable, progress, f"{title} {split}"), split)
            row = {
                "epoch": epoch + 1,
                STEPS: curves.total(STEPS) + steps,
                "learning_rate": optimizer.param_groups[0]["lr"],
                EXAMPLES_PER_SECOND: examples * fabric.world_size / seconds,
                TRAINING_SECONDS: curves.total(TRAINING_SECONDS) + seconds,
                **learner.entropy_values(),
                **learner.epoch_metrics(),
            }
            unreadable.gather(fabric)
            curves.add(row, time.perf_counter() - since)
            _log(loggers, row)
            fabric.save(checkpoint, state)


def train_epoch(
    fabric: Fabric,
    module: Learner,
    optimizer: Optimizer,
    schedule: LRScheduler,
    batches: Iterable[Batch],
    trainer: TrainerSettings,
) -> tuple[int, int]:
    """Take the steps of one epoch.

    Args:
        fabric: devices, processes and precision.
        module: what is trained, set up by `fabric`.
        optimizer: set up by `fabric`.
        schedule: of its learning rates.
        batches: `passes_per_step` for each step, on the device.
        trainer: how a step is taken.

    Returns:
        How many examples this process has seen, and how many steps it has taken.
    """
    module.train()
    examples = steps = 0
    for number, batch in enumerate(batches, 1):
        if batch.unreadable and len(batch.targets) < FEWEST_EXAMPLES:
            raise DataError(f"hardly an example of a batch can be read, the first of them {batch.unreadable[0]}")
        ends_step = number % trainer.passes_per_step == 0
        with fabric.no_backward_sync(module, enabled=fabric.world_size > 1 and not ends_step):
            with fabric.autocast():
                loss = module.training_step(batch)
            fabric.backward(loss)
        if ends_step:
            fabric.clip_gradients(module, optimizer, max_norm=trainer.gradient_clip, error_if_nonfinite=False)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            module.after_step()
            steps += 1
        examples += len(batch.targets)
    return examples, steps


@torch.no_grad()
def measure(fabric: Fabric, module: Learner, batches: Iterable[Batch], split: str) -> None:
    """Count batches to the metrics of a split; arguments as for `train_epoch`."""
    module.eval()
    for batch in batches:
        if len(batch.targets):
            with fabric.autocast():
                module.validation_step(batch, split)


def moved(
    fabric: Fabric, batches: Collection[Batch], unreadable: Unreadable, progress: Progress, title: str
) -> Iterator[Batch]:
    """The batches on the device, with what cannot be read counted and a bar moving."""
    task = progress.add_task(title, total=len(batches))
    for batch in batches:
        unreadable.add(batch.unreadable)
        yield batch.to(fabric.device)
        progress.advance(task)
    progress.remove_task(task)


def progress_bars(settings: RunSettings) -> Progress:
    """A bar for the epoch and its measuring, where a terminal shows one."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    progress = Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), transient=True)
    progress.disable = not (settings.progress and progress.console.is_terminal)
    return progress


def _log(loggers: list[Logger], row: dict[str, float]) -> None:
    values = {name: value for name, value in row.items() if name != "epoch"}
    for logger in loggers:
        logger.log_metrics(values, step=int(row["epoch"]))
