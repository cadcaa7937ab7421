"""One run from its settings to its record."""

import contextlib
import getpass
import hashlib
import inspect
import json
import logging
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lightning.pytorch as L
import torch
from filelock import FileLock
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Callback, ProgressBar
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from experiments.callbacks.checkpoints import BestWeights, PeriodicCheckpoint, finished_epochs
from experiments.callbacks.curves import Curves
from experiments.callbacks.loggers import open_loggers
from experiments.callbacks.progress import Termination, how_it_goes_on, progress_callbacks, say_start
from experiments.callbacks.reproducibility import ReseedEachEpoch
from experiments.checkpoint_files import stated_digest
from experiments.data.base import SplitDataModule
from experiments.errors import ConfigurationError, DataError, DivergedError, UserError
from experiments.files import remove, remove_unfinished, unfinished_folder
from experiments.identity import code_of, run_id
from experiments.interruption import postponed, told
from experiments.machine import environment, forget_peak_memory, peak_memory_mib
from experiments.modules.base import OutputModule
from experiments.modules.classifier import Classifier
from experiments.record import Record, by_split
from experiments.run_folder import CURVES, RECORD, WEIGHTS, checkpoints, finish, place_beside, record_of, tidy
from experiments.settings import (
    ActivationSettings,
    Group,
    RunSettings,
    build,
    build_activation,
    check_values,
    checked,
    get_class_or_function,
)
from experiments.trainer import build_trainer

_log = logging.getLogger(__name__)
logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)  # its notes on devices do not concern the run


def train(settings: RunSettings, folder: Path, sweep_place: str = "") -> Record | None:
    """Train from the last checkpoint, or from the start, to the last epoch; then write the record.

    Args:
        settings: the run; `force` starts it anew, beside a finished run, and replaces the finished run at the end.
        folder: the run's folder. Each new checkpoint replaces the previous one there; at the end the record and the
            weights of the reported epoch replace the checkpoint.
        sweep_place: the run's place in a sweep, the beginning of each printed line.

    Returns:
        The record; None in all but the first of several processes, and if nothing is recorded.

    Raises:
        ConfigurationError: the settings do not fit together.
        DataError: the data cannot be used, or too many examples cannot be read.
        DivergedError: the loss is no longer a number.
    """
    forget_peak_memory()
    build_trainer(settings.trainer, settings.threads, logger=False)  # raises if this machine cannot run it
    L.seed_everything(settings.seed, verbose=False)  # the user's callbacks may draw random numbers
    own_callbacks = _callbacks(settings)  # before the data are read, which takes longer
    for name, group in settings.logger.items():
        if group:
            get_class_or_function(group, f"logger.{name}")
    code = code_of(settings.model_dump())
    module, data = build_run(settings)
    beside = settings.force and (folder / RECORD).exists()
    if rank_zero_only.rank == 0:
        with contextlib.suppress(ConfigurationError):  # a damaged record, which this run replaces
            if beside:
                tidy(folder, record_of(folder))
        remove_unfinished(folder)
        for file in (folder / CURVES, *checkpoints(folder)) if settings.force and not beside else ():
            remove(file)
    place = place_beside(folder) if beside else folder
    try:
        return _train_in(place, folder, settings, module, data, own_callbacks, code, sweep_place)
    finally:
        remove(unfinished_folder(folder))


def _train_in(
    place: Path,
    folder: Path,
    settings: RunSettings,
    module: OutputModule,
    data: SplitDataModule,
    own_callbacks: list[Callback],
    code: dict[str, Any],
    sweep_place: str,
) -> Record | None:
    """Train with all files in `place`, then finish the run in `folder`."""
    last = place / f"last-{code['digest'][:8]}-{data.data.content_hash[:8]}.ckpt"  # only the same code continues it
    best = place / WEIGHTS if settings.keep_weights and module.selected_by is not None else None
    done = None if settings.force else finished_epochs(last, best)
    if done is None and rank_zero_only.rank == 0:
        for other in place.glob("last-*.ckpt"):
            same_code = other.name.startswith(f"last-{code['digest'][:8]}-")
            _log.warning("begins anew: %s is of other %s", other, "data" if same_code else "code")
    curves = Curves(place / CURVES)
    progress = progress_callbacks(settings.progress, curves, sweep_place)
    callbacks = [ReseedEachEpoch(settings.seed), Termination(), *own_callbacks, curves, *progress]
    if best is not None:
        callbacks.append(BestWeights(best, module.selected_by))
    callbacks.append(PeriodicCheckpoint(last, settings.checkpoint_seconds))
    bar = any(isinstance(callback, ProgressBar) for callback in progress)
    options = {"enable_progress_bar": bar} | settings.trainer
    with (
        told(lambda: how_it_goes_on(last, settings, place != folder) if rank_zero_only.rank == 0 else ""),
        open_loggers(settings, place) as loggers,
    ):
        try:
            trainer = build_trainer(options, settings.threads, callbacks=callbacks, logger=loggers)
            if module.lacks_threshold() and trainer.world_size > 1:
                raise ConfigurationError(
                    f"activation.tau=null calibrates the threshold on the first batch, which {trainer.world_size} "
                    "processes share here; give activation.tau=NUMBER, or train on one device"
                )
            if trainer.is_global_zero:
                say_start(settings, data, trainer, folder, done, sweep_place)
            trainer.fit(module, datamodule=data, ckpt_path=None if done is None else last, weights_only=True)
            if settings.keep_weights and best is None and not trainer.fast_dev_run:
                trainer.save_checkpoint(place / WEIGHTS, weights_only=True)
        except MisconfigurationException as error:
            raise ConfigurationError(f"trainer: {error}") from error
        except ValueError as error:  # an activation raises it if its learned orders are no longer numbers
            if isinstance(error, UserError) or all(one.isfinite().all() for one in module.parameters()):
                raise
            raise DivergedError(
                f"in epoch {trainer.current_epoch + 1}, parameters are no longer numbers ({error}): the training has "
                "diverged; a lower optimizer.learning_rate may help"
            ) from error
    if not trainer.is_global_zero or trainer.fast_dev_run:
        return None
    record = _record(settings, trainer, curves, code, place)
    with told(lambda: "the run has finished"), postponed():
        finish(folder, place, record)
    return record


def build_run(settings: RunSettings) -> tuple[OutputModule, SplitDataModule]:
    """The module and the data that settings name, ready for `Trainer.fit`.

    Raises:
        ConfigurationError: a setting is wrong, or the network does not fit the data.
        DataError: the data cannot be used.
    """
    L.seed_everything(settings.seed, verbose=False)  # the user's activation may draw its parameters
    activation = build_activation(settings.activation)
    # Settings that are wrong by themselves raise an error before the data are read.
    check_values(settings.model, "model")
    check_values(settings.module, "module")
    if "attention" in settings.model:
        build_activation(checked(ActivationSettings, settings.model["attention"], "model.attention"), "model.attention")
    optimizer = build(settings.optimizer, "optimizer")
    data = build(settings.data, "data")
    if not isinstance(data, SplitDataModule):
        raise ConfigurationError(f"data: {type(data).__name__} must be a SplitDataModule of experiments/data/base.py")
    _load(data, settings.data)
    L.seed_everything(settings.seed, verbose=False)
    network = build(settings.model, "model", **_sizes(settings.model, data))
    arguments = data.module_arguments()
    module = build(settings.module, "module", network=network, activation=activation, optimizer=optimizer, **arguments)
    if isinstance(module, Classifier):
        module.check(data.data.test.read(torch.arange(1), torch.zeros(1, dtype=torch.int64))[0])
    return module, data


_loaded: dict[str, Any] = {}  # runs of a sweep in one process share the data


def _load(data: SplitDataModule, group: Group) -> None:
    """Load the data, or reuse the data that an earlier run of this process has loaded with the same settings."""
    key = json.dumps(group | {"seed": None}, sort_keys=True)
    data.data = _loaded.get(key)
    if data.data is None:
        lock = Path(tempfile.gettempdir(), f"sharmix-data-{getpass.getuser()}.lock")  # one process downloads
        try:
            with FileLock(lock):
                data.setup()
        except OSError as error:  # the user's data set may raise it
            raise DataError(f"data: {type(data).__name__} cannot be loaded: {error}") from error
        _loaded.clear()  # otherwise the data sets of a sweep would pile up
        _loaded[key] = data.data


def _sizes(model: Group, data: SplitDataModule) -> dict[str, int]:
    """The sizes of the data that are arguments of the network."""
    network, sizes = get_class_or_function(model, "model"), data.network_arguments()
    parameters = inspect.signature(network).parameters
    named = {name for name, one in parameters.items() if one.kind in (one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD)}
    for name in parameters:
        if name in named - model.keys() - sizes.keys() and parameters[name].default is inspect.Parameter.empty:
            raise ConfigurationError(
                f"model: {network.__name__} needs {name}, which {type(data).__name__} does not give; "
                f"it gives {', '.join(sizes)}"
            )
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        named.add("num_classes")
    return {name: int(size) for name, size in sizes.items() if name in named}


def _callbacks(settings: RunSettings) -> list[Callback]:
    callbacks = {name: build(group, f"callbacks.{name}") for name, group in settings.callbacks.items() if group}
    for name, callback in callbacks.items():
        if not isinstance(callback, Callback):
            raise ConfigurationError(f"callbacks.{name}: {type(callback).__name__} must be a Callback of Lightning")
    return [*callbacks.values()]


def weights_hash(module: OutputModule) -> str:
    """The SHA-256 of all parameters and buffers after the last epoch, to compare the results of two trainings."""
    digest = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        digest.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _record(settings: RunSettings, trainer: L.Trainer, curves: Curves, code: dict[str, Any], place: Path) -> Record:
    """The record: settings, data, machine and measured numbers of the run."""
    module, data, rows = trainer.lightning_module, trainer.datamodule, curves.rows
    selected_by = module.selected_by
    if not rows or "test" not in by_split(rows[-1]):
        raise ConfigurationError(
            "the training ended in the middle of an epoch, before anything was measured; trainer.max_steps and "
            "trainer.max_time must allow whole epochs"
        )
    reported = rows[-1] if selected_by is None else max(rows, key=lambda row: row[selected_by])
    config = json.loads(settings.model_dump_json())
    return Record.of_run(
        experiment=settings.name,
        run_id=run_id(config),
        seed=settings.seed,
        config=config,
        code=code,
        environment=environment(trainer.strategy.root_device),
        data={"content_hash": data.data.content_hash, "unreadable": len(data.unreadable.names), **data.data.facts},
        curves=rows,
        metrics=by_split(reported),
        measured_by=dict(module.measured_by),
        selected_by=selected_by,
        epoch=reported["epoch"],
        weights=WEIGHTS if settings.keep_weights else None,
        weights_digest=stated_digest(place / WEIGHTS) if settings.keep_weights else None,
        weights_hash=weights_hash(module),
        wall_time_seconds=curves.seconds,
        peak_memory_mib=peak_memory_mib(),
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
