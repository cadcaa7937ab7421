"""Loggers beside the CSV file of a run: built as configured, given the settings, closed at the end."""

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger, TensorBoardLogger, WandbLogger
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from experiments.callbacks.curves import log_row
from experiments.settings import RunSettings, build


def tensorboard_logger(folder: str, **options: Any) -> TensorBoardLogger:
    """TensorBoard's files in <folder>/tensorboard, begun anew: a resumed run logs its earlier epochs again."""
    shutil.rmtree(Path(folder) / "tensorboard", ignore_errors=True)
    return TensorBoardLogger(folder, name=None, version="tensorboard", **options)


def wandb_logger(folder: str, **options: Any) -> WandbLogger:
    """A Weights & Biases run named after the folder; offline where no key is configured."""
    import wandb

    name = "-".join(Path(folder).parts[-2:])
    if not wandb.login(prompt=False):
        # Of `offline` alone Lightning makes a variable of the environment, which W&B has read before.
        options |= {"offline": True, "mode": "offline"}
    return WandbLogger(name=name, save_dir=folder, **options)


@contextmanager
def open_loggers(settings: RunSettings, folder: Path) -> Iterator[list[Logger]]:
    """The configured loggers, given the settings of the run; none in all but the first of several processes."""
    groups = settings.logger.items() if rank_zero_only.rank == 0 else ()
    loggers: list[Logger] = []
    status = "failed"
    try:
        for name, group in groups:
            if group:
                loggers.append(build(group, f"logger.{name}", folder=str(folder)))
                loggers[-1].log_hyperparams(settings.model_dump(exclude={"paths", "logger"}))
        yield loggers
        status = "success"
    finally:
        for logger in loggers:
            logger.finalize(status)
            # Two runs of one process would share it; one that could not start is not started again.
            if isinstance(logger, WandbLogger) and logger._experiment is not None:
                logger.experiment.finish(exit_code=int(status == "failed"))


def replay(settings: RunSettings, folder: Path, rows: Iterable[dict[str, float]]) -> None:
    """Give the epochs of a finished run to the configured loggers."""
    with open_loggers(settings, folder) as loggers:
        for row in rows:
            log_row(loggers, row)
