"""Loggers that a run uses beside its CSV file: built from the configuration, given the settings, closed at the end."""

import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger, TensorBoardLogger, WandbLogger

from experiments.settings import RunSettings, build


def tensorboard_logger(folder: str, **options: Any) -> TensorBoardLogger:
    """TensorBoard's files in <folder>/tensorboard. They start empty: a resumed run logs its earlier epochs again."""
    shutil.rmtree(Path(folder) / "tensorboard", ignore_errors=True)
    return TensorBoardLogger(folder, name=None, version="tensorboard", **options)


def wandb_logger(folder: str, **options: Any) -> WandbLogger:
    """A Weights & Biases run named after the folder; offline if no key is configured or the server rejects the key.

    Its files lie beside the files of earlier runs, which may not be uploaded yet.
    """
    import wandb

    name = "-".join(Path(folder).parts[-2:])
    # W&B warns of an argument that Lightning gives; and the run's numbers are printed without W&B's copy of them.
    wandb.setup(wandb.Settings(show_warnings=False, quiet=True))
    try:
        online = wandb.login(prompt=False)
    except wandb.errors.CommError as error:  # a wrong key, or a server that cannot be reached
        online = False
        warnings.warn(f"logger.wandb logs offline, and `wandb sync` sends it later: {error}", stacklevel=2)
    if not online:
        options |= {"mode": "offline"}
    return WandbLogger(name=name, save_dir=folder, **options)


@contextmanager
def open_loggers(settings: RunSettings, folder: Path | None) -> Iterator[list[Logger]]:
    """The configured loggers, given the settings of the run, and closed at the end; none without a folder.

    If a logger fails, the run warns and continues without this logger, so that the training is not lost. A
    ConfigurationError says which of a logger's settings is not allowed.
    """
    loggers: list[Logger] = []
    status = "failed"
    try:
        for name, group in settings.logger.items() if folder is not None else ():
            if group:
                loggers.append(_spared(build(group, f"logger.{name}", Logger, folder=str(folder)), f"logger.{name}"))
                loggers[-1].log_hyperparams(settings.model_dump(exclude={"paths", "logger"}))
        yield loggers
        status = "success"
    finally:
        for logger in loggers:
            logger.finalize(status)
            # Otherwise the next run in this process would share the W&B run. A W&B run that never started stays closed.
            if isinstance(logger, WandbLogger) and logger._experiment is not None:
                try:
                    logger.experiment.finish(exit_code=int(status == "failed"))
                except Exception as error:
                    warnings.warn(f"W&B has not closed its run, `wandb sync` sends it later: {error}", stacklevel=2)


def _spared(logger: Logger, key: str) -> Logger:
    """The logger, whose methods warn instead of raising an error; after the first failure they do nothing."""
    failed: list[Exception] = []

    def spared(call: Callable[..., None], *arguments: Any, **options: Any) -> None:
        try:
            if not failed:
                call(*arguments, **options)
        except Exception as error:
            failed.append(error)
            warnings.warn(
                f"{key} has failed, and the run goes on without it: {type(error).__name__}: {error}", stacklevel=3
            )

    for name in ("log_metrics", "log_hyperparams", "save", "after_save_checkpoint", "finalize"):
        setattr(logger, name, partial(spared, getattr(logger, name)))
    return logger
