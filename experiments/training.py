"""One run from settings to record."""

import dataclasses
import hashlib
import json
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from lightning.fabric import seed_everything

import sharmix
from experiments.configuration import RunSettings, TransformerSettings
from experiments.curves import EpochCurves
from experiments.devices import launched_fabric
from experiments.errors import ConfigurationError
from experiments.files import write_atomically
from experiments.fitting import fit
from experiments.identity import DECISIVE, RECORD_SCHEMA, run_id_of
from experiments.job import CURVES, RECORD
from experiments.learner import Learner
from experiments.loggers import build_loggers, close_loggers
from experiments.provenance import code, environment, forget_peak_memory, peak_memory_mib
from experiments.tasks import Data, build_activation, build_feed, build_learner, load_data
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
    if isinstance(settings.model, TransformerSettings):
        build_activation(settings.model.attention, "model.attention")  # a bad one is to be named before data are read
    _refuse_to_calibrate_apart(settings, activation)
    forget_peak_memory()
    fabric = launched_fabric(settings.trainer)
    leads = fabric.is_global_zero
    if settings.force and leads:
        _forget(folder)
    with fabric.rank_zero_first(local=True):  # what is fetched is fetched once
        data = load_data(settings.data, settings.paths.data)
    fabric.seed_everything(settings.seed, verbose=False)
    learner = build_learner(settings, data, activation)
    feed = build_feed(settings, data, fabric.world_size, fabric.global_rank, pin_memory=fabric.device.type == "cuda")
    curves = EpochCurves(folder / CURVES if leads else None)
    unreadable = Unreadable(data.unreadable_most)
    # Named by code and split, so that a run begun by others is not continued by these.
    checkpoint = folder / f"last-{source['digest'][:8]}-{data.split_hash[:8]}.ckpt"
    loggers = build_loggers(settings.logger, folder) if leads else []
    fabric.barrier()
    try:
        fit(fabric, settings, learner, feed, curves, loggers, checkpoint, unreadable)
    finally:
        close_loggers(loggers, settings.logger)
    if not leads:
        return None
    record = {
        **describe(settings, data, unreadable, fabric.device),
        "code": source,
        "weights_hash": weights_hash(learner),
        **results(learner, curves),
    }
    write_atomically(folder / RECORD, json.dumps(record, indent=1, allow_nan=False) + "\n")
    for leftover in folder.glob("*.ckpt*"):  # a killed process may have left a temporary one
        leftover.unlink()
    return record


def _refuse_to_calibrate_apart(settings: RunSettings, activation: sharmix.Activation) -> None:
    processes = settings.trainer.devices * settings.trainer.nodes
    if isinstance(activation, AlphaReLU) and not activation.calibrated and processes > 1:
        raise ConfigurationError(
            f"activation.tau=null calibrates the threshold on the first batch, which {processes} processes share here; "
            "give activation.tau=NUMBER, or train on one device"
        )


def describe(settings: RunSettings, data: Data, unreadable: Unreadable, device: torch.device) -> dict[str, Any]:
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


def weights_hash(learner: Learner) -> str:
    """The SHA-256 of all parameters and buffers after the last epoch, which tells whether two trainings ended alike."""
    digest = hashlib.sha256()
    for name, tensor in learner.state_dict().items():
        digest.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def results(learner: Learner, curves: EpochCurves) -> dict[str, Any]:
    """The curves, and what was measured after the epoch that is reported: the last, or the best of `selected_by`."""
    rows = curves.rows
    reported = rows[-1] if learner.selected_by is None else max(rows, key=lambda row: row[learner.selected_by])
    return {
        "curves": rows,
        "measured_by": learner.measured_by(),
        "selected_by": learner.selected_by,
        "epoch": reported["epoch"],
        "metrics": {
            split: {name.partition("/")[2]: value for name, value in reported.items() if name.startswith(f"{split}/")}
            for split in learner.splits
        },
        "wall_time_seconds": curves.seconds,
        "peak_memory_mib": peak_memory_mib(),
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _forget(folder: Path) -> None:
    for file in (folder / RECORD, folder / CURVES, *folder.glob("*.ckpt*")):
        file.unlink(missing_ok=True)
