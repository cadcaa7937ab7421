"""One run from settings to record."""

import dataclasses
import functools
import json
import logging
import sys
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint, RichProgressBar

import sharmix
from experiments.airline import load_airline
from experiments.batches import ordered_loader, shuffled_loader
from experiments.checkpoints import AtomicCheckpoints
from experiments.classifier import SPLITS, Classifier
from experiments.configuration import ActivationSettings, AirlineSettings, DigitsSettings, RunSettings
from experiments.curves import EpochCurves
from experiments.dataset import ClassificationData
from experiments.digits import load_digits_data
from experiments.errors import ConfigurationError
from experiments.files import write_atomically
from experiments.identity import DECISIVE, RECORD_SCHEMA, run_id_of
from experiments.job import CURVES, RECORD
from experiments.loggers import build_loggers, close_loggers
from experiments.models import build_model
from experiments.provenance import code, environment, forget_peak_memory, peak_memory_mib

for _name in ("lightning.pytorch", "lightning.fabric"):
    logging.getLogger(_name).setLevel(logging.WARNING)  # its notes on devices and products are not about the run


def train(settings: RunSettings, folder: Path) -> dict[str, Any]:
    """Train from the last checkpoint, or from the start, to the last epoch; then write the record.

    Args:
        settings: the run.
        folder: of the run; gets a checkpoint after every epoch, in place of the one before, and in the end the record
            in place of all checkpoints.

    Returns:
        The record.

    Raises:
        ConfigurationError: the activation does not allow its settings.
        DataError: the data cannot be used.
        DivergedError: the loss is no longer a number.
    """
    source = code()
    activation = build_activation(settings.activation)
    forget_peak_memory()
    torch.set_num_threads(settings.trainer.threads)
    data = load_data(settings.data, settings.paths.data)
    L.seed_everything(settings.seed, verbose=False)
    model = build_model(settings.model, data)
    classifier = Classifier(model, activation, settings.optimizer, len(data.class_names))
    curves = EpochCurves(folder / CURVES)
    # Named by code and split, so that a run begun by others is not continued by these.
    checkpoint = folder / f"last-{source['digest'][:8]}-{data.split_hash[:8]}.ckpt"
    try:
        fit(settings, classifier, data, curves, checkpoint)
    finally:
        close_loggers(settings.logger)
    record = {**describe(settings, data), "code": source, **results(curves)}
    write_atomically(folder / RECORD, json.dumps(record, indent=1, allow_nan=False) + "\n")
    for leftover in folder.glob("*.ckpt"):
        leftover.unlink()
    return record


def build_activation(settings: ActivationSettings) -> sharmix.Activation:
    """The activation a configuration asks for.

    Raises:
        ConfigurationError: it does not exist or does not allow its settings.
    """
    try:
        return sharmix.build_activation(settings.name, **settings.arguments())
    except (ValueError, TypeError, ImportError) as error:
        raise ConfigurationError(f"activation={settings.name}: {error}") from error


@functools.cache  # the jobs of a sweep that share a process share the data
def load_data(settings: AirlineSettings | DigitsSettings, folder: str | None) -> ClassificationData:
    """The data a configuration asks for, from `folder` or its public home."""
    if isinstance(settings, AirlineSettings):
        return load_airline(settings, Path(folder) if folder else None)
    return load_digits_data(settings)


def fit(
    settings: RunSettings, classifier: Classifier, data: ClassificationData, curves: EpochCurves, checkpoint: Path
) -> None:
    """Run the epochs that are left, measuring both splits after each."""
    keep_last = ModelCheckpoint(
        checkpoint.parent, checkpoint.stem, save_on_train_epoch_end=True, enable_version_counter=False
    )
    show_progress = settings.progress and sys.stdout.isatty()
    trainer = L.Trainer(
        accelerator=settings.trainer.accelerator,
        devices=1,
        max_epochs=settings.trainer.epochs,
        gradient_clip_val=settings.trainer.gradient_clip,
        logger=build_loggers(settings.logger, checkpoint.parent),
        callbacks=[curves, keep_last, *([RichProgressBar()] if show_progress else [])],
        plugins=[AtomicCheckpoints()],
        enable_progress_bar=show_progress,
        enable_model_summary=False,
        log_every_n_steps=1,  # every epoch's row is passed on, however few its steps
        num_sanity_val_steps=0,
        deterministic=True,
    )
    batch_size, many = settings.trainer.batch_size, settings.trainer.evaluation_batch_size
    with warnings.catch_warnings():
        # The examples lie in memory: loader processes would only cost time.
        warnings.filterwarnings("ignore", message=".*does not have many workers")
        warnings.filterwarnings("ignore", message=".*treespec, LeafSpec", category=FutureWarning)  # Lightning's own
        warnings.filterwarnings("ignore", message=".*exists and is not empty")  # it holds the run's own files
        trainer.fit(
            classifier,
            shuffled_loader(data.train_inputs, data.train_targets, batch_size, settings.seed),
            [
                ordered_loader(data.train_inputs, data.train_targets, many),
                ordered_loader(data.test_inputs, data.test_targets, many),
            ],
            ckpt_path=checkpoint if checkpoint.exists() else None,
        )


def describe(settings: RunSettings, data: ClassificationData) -> dict[str, Any]:
    """What was run, on what data, on what machine."""
    config = dataclasses.asdict(settings)
    return {
        "schema": RECORD_SCHEMA,
        "experiment": settings.name,
        "run_id": run_id_of({key: config[key] for key in DECISIVE}),
        "seed": settings.seed,
        "config": config,
        "environment": environment(),
        "data": {"split_hash": data.split_hash, **data.facts},
    }


def results(curves: EpochCurves) -> dict[str, Any]:
    """The curves, and what the last epoch measured; no epoch is selected."""
    last = curves.rows[-1]
    return {
        "curves": curves.rows,
        "metrics": {
            split: {name.partition("/")[2]: value for name, value in last.items() if name.startswith(f"{split}/")}
            for split in SPLITS
        },
        "wall_time_seconds": curves.seconds,
        "peak_memory_mib": peak_memory_mib(),
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
