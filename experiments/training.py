"""One run from settings to record."""

import dataclasses
import functools
import hashlib
import json
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from lightning.fabric import seed_everything

import sharmix
from experiments.airline import load_airline
from experiments.cifar100 import load_cifar100
from experiments.classifier import SPLITS, Classifier
from experiments.configuration import (
    ActivationSettings,
    AirlineSettings,
    Cifar100Settings,
    DataSettings,
    DigitsSettings,
    RunSettings,
)
from experiments.curves import EpochCurves
from experiments.dataset import ClassificationData
from experiments.devices import launched_fabric
from experiments.digits import load_digits_data
from experiments.errors import ConfigurationError
from experiments.files import write_atomically
from experiments.fitting import fit
from experiments.identity import DECISIVE, RECORD_SCHEMA, run_id_of
from experiments.imagenet import load_imagenet
from experiments.job import CURVES, RECORD
from experiments.loggers import build_loggers, close_loggers
from experiments.models import build_model
from experiments.provenance import code, environment, forget_peak_memory, peak_memory_mib
from experiments.unreadable import Unreadable
from sharmix.activations import AlphaReLU

for _name in ("lightning.pytorch", "lightning.fabric"):
    logging.getLogger(_name).setLevel(logging.WARNING)  # its notes on devices and products are not about the run


def train(settings: RunSettings, folder: Path) -> dict[str, Any] | None:
    """Train from the last checkpoint, or from the start, to the last epoch; then write the record.

    Args:
        settings: the run; `force` starts it anew.
        folder: of the run; gets a checkpoint after every epoch, in place of the one before, and in the end the record
            in place of all checkpoints.

    Returns:
        The record; None in all but the first of several processes.

    Raises:
        ConfigurationError: the activation, the devices or the folders do not allow the settings.
        DataError: the data cannot be used, or too many examples cannot be read.
        DivergedError: the loss is no longer a number.
    """
    source = code()
    seed_everything(settings.seed, verbose=False)  # an activation of one's own may draw its parameters
    activation = build_activation(settings.activation)
    _refuse_to_calibrate_on_parts(settings, activation)
    forget_peak_memory()
    fabric = launched_fabric(settings.trainer)
    leads = fabric.is_global_zero
    if settings.force and leads:
        _forget(folder)
    with fabric.rank_zero_first(local=True):  # what is fetched is fetched once
        data = load_data(settings.data, settings.paths.data)
    fabric.seed_everything(settings.seed, verbose=False)
    classifier = build_classifier(settings, data, activation)
    curves = EpochCurves(folder / CURVES if leads else None)
    unreadable = Unreadable(data.unreadable_most)
    # Named by code and split, so that a run begun by others is not continued by these.
    checkpoint = folder / f"last-{source['digest'][:8]}-{data.split_hash[:8]}.ckpt"
    loggers = build_loggers(settings.logger, folder) if leads else []
    fabric.barrier()
    try:
        fit(fabric, settings, classifier, data, curves, loggers, checkpoint, unreadable)
    finally:
        close_loggers(loggers, settings.logger)
    if not leads:
        return None
    record = {
        **describe(settings, data, unreadable, fabric.device),
        "code": source,
        "weights_hash": weights_hash(classifier),
        **results(curves),
    }
    write_atomically(folder / RECORD, json.dumps(record, indent=1, allow_nan=False) + "\n")
    for leftover in folder.glob("*.ckpt*"):  # a killed process may have left a temporary one
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


def _refuse_to_calibrate_on_parts(settings: RunSettings, activation: sharmix.Activation) -> None:
    trainer = settings.trainer
    parts = trainer.devices * trainer.nodes * trainer.passes_per_step
    if isinstance(activation, AlphaReLU) and not activation.calibrated and parts > 1:
        raise ConfigurationError(
            f"activation.tau=null calibrates the threshold on the first batch, which is in {parts} parts here; give "
            "activation.tau=NUMBER, or train on one device in one pass"
        )


@functools.cache  # the jobs of a sweep that share a process share the data
def load_data(settings: DataSettings, folder: str | None) -> ClassificationData:
    """The data a configuration asks for, from `folder` or its public home."""
    path = Path(folder) if folder else None
    if isinstance(settings, AirlineSettings):
        return load_airline(settings, path)
    if isinstance(settings, Cifar100Settings):
        return load_cifar100(settings, path)
    if isinstance(settings, DigitsSettings):
        return load_digits_data(settings)
    return load_imagenet(settings, path)


def build_classifier(settings: RunSettings, data: ClassificationData, activation: sharmix.Activation) -> Classifier:
    """The network a configuration asks for, under its activation."""
    trainer = settings.trainer
    model = build_model(settings.model, data)
    if trainer.channels_last:
        model.to(memory_format=torch.channels_last)
    return Classifier(
        model,
        activation,
        settings.optimizer,
        fused=trainer.precision != "16-mixed",
        classes=len(data.class_names),
        augment=data.augment,
        shots=data.shots,
        running=trainer.train_metrics == "running",
    )


def describe(
    settings: RunSettings, data: ClassificationData, unreadable: Unreadable, device: torch.device
) -> dict[str, Any]:
    """What was run, on what data, on what machine."""
    config = dataclasses.asdict(settings)
    return {
        "schema": RECORD_SCHEMA,
        "experiment": settings.name,
        "run_id": run_id_of({key: config[key] for key in DECISIVE}),
        "seed": settings.seed,
        "config": config,
        "environment": environment(device),
        "data": {"split_hash": data.split_hash, "unreadable": len(unreadable.names), **data.facts},
    }


def weights_hash(classifier: Classifier) -> str:
    """The SHA-256 of all parameters and buffers, by which two trainings can be told to have ended alike."""
    digest = hashlib.sha256()
    for name, tensor in classifier.state_dict().items():
        digest.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


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


def _forget(folder: Path) -> None:
    for file in (folder / RECORD, folder / CURVES, *folder.glob("*.ckpt*")):
        file.unlink(missing_ok=True)
