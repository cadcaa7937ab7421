"""Where curves go beside the run's own CSV file."""

import shutil
from pathlib import Path

from lightning.pytorch.loggers import Logger, TensorBoardLogger, WandbLogger

from experiments.configuration import LoggerSettings


def build_loggers(settings: LoggerSettings, folder: Path) -> list[Logger]:
    """The loggers a configuration asks for; none for `csv`, which every run writes anyway.

    Args:
        settings: which logger.
        folder: the run's folder, <...>/<activation>-<hash>/seed-<seed>.
    """
    if settings.name == "tensorboard":
        shutil.rmtree(folder / "tensorboard", ignore_errors=True)  # a resumed run logs its earlier epochs again
        return [TensorBoardLogger(folder, name=None, version="tensorboard")]
    if settings.name == "wandb":
        import wandb

        name = f"{folder.parent.name}-{folder.name}"
        offline = not wandb.login(prompt=False)
        return [WandbLogger(project=settings.project, name=name, save_dir=folder, offline=offline)]
    return []


def close_loggers(loggers: list[Logger], settings: LoggerSettings) -> None:
    """Write what is held back, and end what outlives a job: two jobs of one process would share a W&B run."""
    for logger in loggers:
        logger.finalize("finished")
    if settings.name == "wandb":
        import wandb

        wandb.finish()
