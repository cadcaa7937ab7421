"""One run: from its settings to its record."""

import experiments.quick_imports  # noqa: F401  # before Lightning: it saves a third of the time of the imports

# isort: split
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import lightning.pytorch as L
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Callback
from rich.console import Console
from rich.text import Text

from experiments import run_folder
from experiments.building import build_module_and_data
from experiments.callbacks.checkpoints import BestWeights, PeriodicCheckpoint, finished_epochs
from experiments.callbacks.curves import Curves, log_row
from experiments.callbacks.loggers import open_loggers
from experiments.callbacks.progress import PARAMETERS, Progress, described
from experiments.composition import settings_of_record
from experiments.data.base import SplitDataModule
from experiments.durations import duration
from experiments.errors import ConfigurationError, DataError, DivergedError, UserError
from experiments.files import write_atomically
from experiments.identity import code_of, run_id
from experiments.machine import environment, forget_peak_memory, peak_memory_mib
from experiments.messages import Interrupted
from experiments.modules.base import OutputModule
from experiments.record import Record, by_split, load_record
from experiments.run_folder import CHECKPOINTS, CURVES, RECORD, WEIGHTS
from experiments.settings import RunSettings, build, get_class_or_function
from experiments.trainer import ReseedEachEpoch, Termination, build_trainer

HEADLINES = {"bleu": "BLEU {:.2f}", "accuracy": "accuracy {:.3f}", "sparsity": "sparsity {:.3f}"}
SIZES = ("train_size", "validation_size", "dev_size", "test_size")
RANK_VARIABLES = ("RANK", "SLURM_PROCID", "LOCAL_RANK", "NODE_RANK")  # set by torchrun, SLURM or Lightning
LINE_WIDTH = 120


class Run:
    """What the settings of a run name, trained in a folder of its own.

    Each line that it prints begins with `line_prefix`, which names the run's place in a sweep. If several processes
    train the run together, only the first one, where `is_first` is true, prints and writes files.
    """

    def __init__(self, settings: RunSettings, folder: Path, line_prefix: str = "") -> None:
        self.settings, self.folder, self.line_prefix = settings, folder, line_prefix
        self.config = json.loads(settings.model_dump_json())
        self.console = Console(highlight=False, soft_wrap=True)
        self.is_first = all(os.environ.get(name, "0") == "0" for name in RANK_VARIABLES)
        self.title = f"{settings.name} {described(settings.activation)} seed {settings.seed}"

    def complete(self) -> Record | None:
        """The record of a finished run; otherwise of a training from the last checkpoint.

        If another process works in the folder, this process waits. With `force`, a finished run is trained again, and
        the new record replaces the old one. All but the first of several processes get None.

        Raises:
            ConfigurationError: the settings do not fit together, or the folder has the record of another run.
            DataError: the data cannot be used.
            DivergedError: the loss is no longer a number.
            Interrupted: by Ctrl-C or SIGTERM; says how the run goes on.
        """
        folder = self.folder.resolve()
        if folder in (Path.cwd(), *Path.cwd().parents):
            raise ConfigurationError(f"hydra.run.dir={folder} is not allowed; give a folder that holds nothing else")
        if not self.is_first:  # a finished run may lie aside if a forced one was killed
            places = run_folder.finished_run_aside(self.folder), self.folder
            finished = any((place / RECORD).exists() for place in places)
            return self.train() if self.settings.force or not finished else None
        lock = self.folder.with_name(f".{self.folder.name}.lock")
        try:
            with run_folder.locked(lock, lambda holder: self.say(f"waits for {holder}, which works on {self.title}")):
                if not self.settings.force or (self.folder / RECORD).exists():
                    run_folder.end_replacement(self.folder)
                aside = run_folder.finished_run_aside(self.folder)  # still there: a forced run was killed and goes on
                if not aside.exists() and not (self.folder / RECORD).exists():
                    return self.train()
                if self.settings.force:
                    with run_folder.replaced(self.folder):
                        return self.train()
                return self._skip()
        finally:  # a run that failed may leave it empty
            run_folder.remove_empty(self.folder, Path(self.settings.paths.outputs))

    def build(self) -> tuple[OutputModule, SplitDataModule]:
        """The module and the data that the settings name, ready for `Trainer.fit`; raises as `complete`."""
        return build_module_and_data(self.settings)

    def train(self) -> Record | None:
        """Train from the last checkpoint, or from the start, to the last epoch, and write the record, as `complete`."""
        forget_peak_memory()
        code, curves = code_of(self.config), Curves(self.folder / CURVES if self.is_first else None)
        checkpoint = PeriodicCheckpoint(self.folder, self.settings.checkpoint_seconds)
        trainer = self._plan(curves, checkpoint)
        module, data = self.build()
        refuse_shared_calibration(module, trainer.world_size)
        last, best = self._files(module, data, code["digest"])
        checkpoint.filename = last.stem
        epochs_done, remark = self._resume(last, best)
        with self._explained(module, curves, last):
            self._fit(trainer, module, data, last if epochs_done else None, remark)
        if not self.is_first or trainer.fast_dev_run:
            return None
        return self._keep(record_of(self, trainer, curves, code))

    def _plan(self, curves: Curves, checkpoint: PeriodicCheckpoint) -> L.Trainer:
        """The Trainer with its callbacks. Wrong options, loggers and callbacks are refused before data are read."""
        for name, group in self.settings.logger.items():
            if group:
                get_class_or_function(group, f"logger.{name}")
        callbacks = self._callbacks(curves, checkpoint)
        trainer = build_trainer(self.settings.trainer, self.settings.threads, callbacks)
        if trainer.world_size == 1 and not self.is_first:
            ranks = " ".join(f"{name}={os.environ[name]}" for name in RANK_VARIABLES if name in os.environ)
            raise ConfigurationError(f"{ranks} says that another process records the run, but there is none; unset it")
        return trainer

    def _callbacks(self, curves: Curves, checkpoint: PeriodicCheckpoint) -> list[Callback]:
        """The callbacks in the order in which Lightning calls them.

        The user's own come before Curves, so they run before an epoch's row is complete.
        """
        settings = self.settings
        L.seed_everything(settings.seed, verbose=False)  # the user's own may draw random numbers
        own = [build(group, f"callbacks.{name}", Callback) for name, group in settings.callbacks.items() if group]
        callbacks = [ReseedEachEpoch(settings.seed), Termination(self.say), *own, curves]
        if self.is_first and settings.progress != "none":
            callbacks.append(Progress(curves, self.console, self.line_prefix, settings.progress))
        if settings.keep_weights:
            callbacks.append(BestWeights(self.folder / WEIGHTS, curves))
        return [*callbacks, checkpoint]

    def _files(self, module: OutputModule, data: SplitDataModule, code: str) -> tuple[Path, Path | None]:
        """The checkpoint, and the weights of the best epoch; None if the module selects none, or none are kept."""
        best = self.folder / WEIGHTS if self.settings.keep_weights and module.selected_by is not None else None
        # Only the same run goes on from a checkpoint, and only by the same code on the same data.
        same = (run_id(self.config), self.settings.seed, code, data.data.content_hash, best is not None)
        return self.folder / f"last-{hashlib.sha256(repr(same).encode()).hexdigest()[:16]}.ckpt", best

    def _resume(self, last: Path, best: Path | None) -> tuple[int, str]:
        """The epochs that the run does not repeat, and a remark on them."""
        if epochs_done := finished_epochs(last, best):
            return epochs_done, f"goes on from epoch {epochs_done + 1}"
        left, damaged = any(self.folder.glob(CHECKPOINTS)), last.exists()
        if self.is_first and best is not None:  # an older checkpoint goes with best weights that this run overwrites
            run_folder.remove_all_but(self.folder, weights=None)
        changed = "code, data or settings have changed since its checkpoint"
        reason = "its checkpoint is damaged" if damaged else changed
        return 0, f"starts again, because {reason}" if left else ""

    def _fit(
        self, trainer: L.Trainer, module: OutputModule, data: SplitDataModule, begun: Path | None, remark: str
    ) -> None:
        """Train to the last epoch, from a checkpoint if one is given, and keep the weights."""
        folder = self.folder if self.is_first and not trainer.fast_dev_run else None
        with open_loggers(self.settings, folder) as trainer.loggers:
            if not (self.line_prefix and self.settings.progress == "none"):
                self._say_start(trainer, data, remark)
            trainer.fit(module, datamodule=data, ckpt_path=begun, weights_only=True)
            if self.settings.keep_weights and module.selected_by is None and not trainer.fast_dev_run:
                trainer.save_checkpoint(self.folder / WEIGHTS, weights_only=True)

    def _keep(self, record: Record) -> Record:
        """Write the record, remove the checkpoint, and say the result."""
        write_atomically(self.folder / RECORD, record.to_json(indent=1) + "\n")
        run_folder.remove_all_but(self.folder, record.weights)
        time = "" if self.line_prefix else duration(record.wall_time_seconds)
        self.say(self.title, headlines(record), learned_orders(record), time, style="bold green")
        if not self.line_prefix:
            self.say(short(self.folder / RECORD))
        return record

    def say(self, *parts: str, style: str = "") -> None:
        """Print a line; only the first of several processes does. A sweep's line omits parts that do not fit."""
        if self.is_first:
            line = f"{self.line_prefix}{parts[0]}"
            for part in filter(None, parts[1:]):
                if not self.line_prefix or len(line) + len(f" · {part}") <= LINE_WIDTH:
                    line += f" · {part}"
            self.console.print(Text(line, style))

    def _skip(self) -> Record:
        """The record of the finished run; the configured loggers get its epochs, but W&B only if it has no run yet."""
        record, config = load_record(self.folder / RECORD), self.config
        if (record.run_id, record.seed) != (run_id(config), self.settings.seed):  # by hydra.run.dir
            raise ConfigurationError(f"{self.folder}: another run has its record there; give this one another folder")
        before, now = (one["data"].get("expected_examples") for one in (record.config, config))
        if before != now:
            raise ConfigurationError(
                f"{self.folder}: its finished run has data.expected_examples={before}, this one {now}: other "
                "data; give this one another folder, or force=true to replace the finished one"
            )
        run_folder.remove_all_but(self.folder, record.weights)
        same_code = record.code.digest == code_of(config)["digest"]
        notes = ("", "") if same_code else (" by other code", "force=true repeats it")
        # W&B keeps each of its runs, and would get a second one of this run; other loggers start their files again.
        known = {"wandb"} & self.settings.logger.keys() if (self.folder / "wandb").exists() else set()
        there = f"W&B has {short(self.folder / 'wandb')}" if known else ""
        result = headlines(record), learned_orders(record)
        self.say(f"{self.title} · finished before{notes[0]}", *result, notes[1], there, style="green")
        new = {name: group for name, group in self.settings.logger.items() if name not in known}
        with open_loggers(self.settings.model_copy(update={"logger": new}), self.folder) as loggers:
            for row in record.curves:
                log_row(loggers, row)
        return record

    def _say_start(self, trainer: L.Trainer, data: SplitDataModule, start: str) -> None:
        facts, device = data.data.facts, trainer.strategy.root_device.type
        sizes = [f"{name.removesuffix('_size')} {facts[name]:,}" for name in SIZES if name in facts]
        devices = device if trainer.world_size == 1 else f"{trainer.world_size} × {device}"
        if device == "cpu" and torch.cuda.is_available():
            devices = f"{devices}; the GPU is idle without trainer.accelerator=gpu"
        self.say(" · ".join(filter(None, (self.title, start))), *sizes, devices, style="bold")
        if not self.line_prefix:
            self.say(short(self.folder))

    @contextmanager
    def _explained(self, module: OutputModule, curves: Curves, last: Path) -> Iterator[None]:
        """Turn what may end a training into errors that say what to do."""
        try:
            yield
        except (KeyboardInterrupt, SystemExit) as stop:
            if isinstance(stop, SystemExit) and not isinstance(stop.__context__, KeyboardInterrupt):  # not Lightning's
                raise
            raise Interrupted(self._how_it_goes_on(last) if self.is_first else "") from None
        except MisconfigurationException as error:
            raise ConfigurationError(f"trainer: {error}") from error
        except RuntimeError as error:
            if "conditioned on metric" not in str(error):
                raise
            raise ConfigurationError(f"callbacks: {error}") from error
        except ValueError as error:  # an activation raises it if its learned orders are no longer numbers
            if isinstance(error, UserError) or all(one.isfinite().all() for one in module.parameters()):
                raise
            raise DivergedError(
                f"in epoch {len(curves.rows) + 1}, parameters are no longer numbers ({error}): the training has "
                "diverged; a lower optimizer.learning_rate may help"
            ) from error

    def _how_it_goes_on(self, last: Path) -> str:
        if run_folder.finished_run_aside(self.folder).exists():
            return "the finished run is as it was, and the same command repeats it from the start"
        if not last.exists():
            return "the same command starts again, because there is no checkpoint yet"
        return f"the same command goes on from epoch {finished_epochs(last) + 1}"


def refuse_shared_calibration(module: OutputModule, processes: int) -> None:
    """Raise a ConfigurationError if several processes would each calibrate a threshold on their own part of a batch."""
    if module.lacks_threshold() and processes > 1:
        raise ConfigurationError(
            f"activation.tau=null calibrates the threshold on the first batch, which {processes} processes share here; "
            "give activation.tau=NUMBER, or train on one device"
        )


def record_of(run: Run, trainer: L.Trainer, curves: Curves, code: dict[str, object]) -> Record:
    """The record of a training that has just ended: settings, data, machine and measured numbers.

    Raises:
        ConfigurationError: the training ended before its last epoch was measured.
    """
    module, data, rows = trainer.lightning_module, trainer.datamodule, curves.rows
    if not rows or "test" not in by_split(rows[-1]):
        raise ConfigurationError(
            "the training had no epoch, or its last one was not measured; choose trainer.max_epochs, max_steps, "
            "max_time, min_epochs and min_steps so that they end with an epoch"
        )
    reported = rows[-1] if module.selected_by is None else max(rows, key=lambda row: row[module.selected_by])
    weights = run.folder / WEIGHTS if run.settings.keep_weights else None
    return Record(
        experiment=run.settings.name,
        run_id=run_id(run.config),
        seed=run.settings.seed,
        config=run.config,
        code=code,
        environment=environment(trainer.strategy.root_device),
        data={"content_hash": data.data.content_hash, **data.data.facts},
        curves=rows,
        metrics=by_split(reported),
        measured_by=dict(module.measured_by),
        selected_by=module.selected_by,
        epoch=reported["epoch"],
        weights=weights and weights.name,
        weights_digest=weights and file_digest(weights),
        weights_hash=weights_hash(module),
        wall_time_seconds=curves.seconds,
        peak_memory_mib=peak_memory_mib(),
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def load_run(folder: str | Path, data_folder: str | Path | None = None) -> tuple[OutputModule, SplitDataModule]:
    """A finished run: its module with the weights of the reported epoch, ready to predict, and its data.

    The record names the classes that are built, so load only records that you trust.

    Args:
        folder: of the run, with its record and weights.
        data_folder: folder that holds the data sets, in place of the run's `paths.data`.

    Raises:
        ConfigurationError: the folder holds no finished run, no weights, or other weights than the record names.
        DataError: the data set cannot be loaded, or differs from the run's data set.
    """
    file, weights = Path(folder) / RECORD, Path(folder) / WEIGHTS
    if not file.exists():
        raise ConfigurationError(f"{folder}: there is no {RECORD}; give the folder of a finished run")
    record, remedy = load_record(file), "repeat the run with keep_weights=true force=true"
    settings = settings_of_record(record, {})
    if data_folder is not None:
        settings = settings.model_copy(update={"data": settings.data | {"folder": str(data_folder)}})
    if record.weights is None or not weights.is_file():
        raise ConfigurationError(f"{folder}: there is no {WEIGHTS}; {remedy}")
    if file_digest(weights) != record.weights_digest:
        raise ConfigurationError(f"{weights}: these are not the weights that the record names; {remedy}")
    module, data = Run(settings, Path(folder)).build()
    if data.data.content_hash != record.data["content_hash"]:
        raise DataError(f"{folder}: its data set has changed; restore the files that the run was trained on")
    try:
        module.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True)["state_dict"])
    except RuntimeError as error:
        raise ConfigurationError(f"{weights}: the weights are of other code; {remedy}") from error
    return module.eval(), data


def headlines(record: Record) -> str:
    """The main numbers of a run, measured on test."""
    test = record.metrics.get("test", {})
    return " ".join(text.format(test[name]) for name, text in HEADLINES.items() if name in test)


def learned_orders(record: Record) -> str:
    """The learned orders, and the threshold of α-ReLU, at the epoch that the run reports."""
    (row,) = (row for row in record.curves if row["epoch"] == record.epoch)
    return " ".join(f"{name} {row[name]:.2f}" for name in PARAMETERS if name in row)


def weights_hash(module: OutputModule) -> str:
    """The SHA-256 of all parameters and buffers after the last epoch, to compare the results of two trainings."""
    digest = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        numbers = tensor.detach().cpu().flatten().view(torch.uint8)  # NumPy has no bfloat16
        digest.update(name.encode() + numbers.numpy().tobytes())
    return digest.hexdigest()


def file_digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def short(path: Path) -> str:
    """A path below the working folder without that folder."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
