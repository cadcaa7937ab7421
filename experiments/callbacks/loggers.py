"""Loggers beside the CSV file of a run: built as configured, given the settings, closed at the end."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger, TensorBoardLogger, WandbLogger
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from experiments.callbacks.curves import STEPS
from experiments.settings import RunSettings, build


def tensorboard_logger(folder: str, **options: Any) -> TensorBoardLogger:
    """TensorBoard's files in <folder>/tensorboard, begun anew: a resumed run logs its earlier epochs again."""
    shutil.rmtree(Path(folder) / "tensorboard", ignore_errors=True)
    return TensorBoardLogger(folder, name=None, version="tensorboard", **options)


def wandb_logger(folder: str, **options: Any) -> WandbLogger:
    """A Weights & Biases run named after the folder; offline where no key is configured."""
    import wandb

    path = Path(folder)
    return WandbLogger(
        name=f"{path.parent.name}-{path.name}", save_dir=folder, offline=not wandb.login(prompt=False), **options
    )


def build_loggers(settings: RunSettings, folder: Path) -> list[Logger]:
    """The configured loggers, given the settings of the run; none in all but the first of several processes."""
    if rank_zero_only.rank != 0:
        return []
    groups = settings.logger.items()
    loggers = [build(group, f"logger.{name}", folder=str(folder)) for name, group in groups if group]
    for logger in loggers:
        logger.log_hyperparams(settings.model_dump(exclude={"paths", "logger"}))
    return loggers


def close_loggers(loggers: Iterable[Logger]) -> None:
    """Write what is held back, and end what outlives a run: two runs of one process would share a W&B run."""
    for logger in loggers:
        logger.finalize("finished")
        if isinstance(logger, WandbLogger):
            logger.experiment.finish()


def replay(settings: RunSettings, folder: Path, rows: Iterable[dict[str, float]]) -> None:
    """Give the epochs of a finished run to the configured loggers."""
    loggers = build_loggers(settings, folder)
    for row in rows:
        for logger in loggers:
            values = {name: value for name, value in row.items() if name != STEPS}
            logger.log_metrics(values, step=int(row.get(STEPS, row["epoch"])))
    close_loggers(loggers)
