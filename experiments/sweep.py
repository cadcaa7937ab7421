"""Sweeps: the place of a run in its sweep, failed runs, and the objective that a sweeper optimises."""

import functools
import logging
import math
import multiprocessing
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.utils import JobReturn, JobStatus
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from experiments.command_line import FAILED_RUNS, replace_unknown_characters
from experiments.errors import ConfigurationError
from experiments.metric_catalogue import metric
from experiments.record import Record
from experiments.run_folder import remove_empty
from experiments.settings import RunSettings


class Sweep(Callback):
    """Hydra calls it at the start and the end of a sweep and of each job; the jobs' processes have copies of it."""

    current: "ClassVar[Sweep | None]" = None  # the sweep of this process's job

    def __init__(self) -> None:
        self.runs: int | None = None
        self.process = os.getpid()
        self.failed_trials = 0

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        self.runs = _number_of_runs(config)
        if _optimises(config.hydra):
            logging.getLogger("hydra_plugins.hydra_optuna_sweeper._impl").addFilter(self._count_failed_trial)
        if "submitit_folder" in config.hydra.launcher:
            logs = os.path.relpath(Path(config.hydra.launcher.submitit_folder).parent)
            print(f"runs as jobs of their own, {self.runs or 'some'} in all; what they print: {logs}/JOB/", flush=True)

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        if config.hydra.mode != RunMode.MULTIRUN:
            return
        Sweep.current = self
        replace_unknown_characters()
        if multiprocessing.current_process().name.startswith("LokyProcess"):  # a worker of joblib
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the sweep's own process ends its workers
            _end_with(self.process)
        if not config.hydra.job.chdir:
            os.chdir(config.hydra.runtime.cwd)  # paths of data may be relative, and a worker may start elsewhere

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        if config.hydra.mode == RunMode.MULTIRUN and job_return.status == JobStatus.FAILED:
            run, error = " ".join(job_return.overrides or []), job_return._return_value
            print(f"failed: {run}: {str(error).strip().partition(chr(10))[0]}", file=sys.stderr)
            error.is_printed = True  # at the end of the sweep, Hydra raises the first job's error
            remove_empty(Path(config.hydra.runtime.output_dir), Path(config.hydra.sweep.dir))  # Hydra has made it

    def _count_failed_trial(self, message: logging.LogRecord) -> bool:
        """Drop Optuna's message on a failed trial, which `on_job_end` has named; Optuna itself ends as if none had."""
        failed = message.getMessage().startswith("Failed experiment")
        self.failed_trials += failed
        return not failed

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        if _optimises(config.hydra):
            best = OmegaConf.load(Path(config.hydra.sweep.dir) / "optimization_results.yaml")
            settings = " ".join(f"{key}={value}" for key, value in best.best_params.items())
            print(f"best of the study: {settings}, objective {best.best_value:.4f}")
        if self.failed_trials:
            sys.exit(FAILED_RUNS)

    def line_prefix(self, number: int) -> str:
        """The beginning of a job's lines: its number, and the number of runs."""
        return f"[{number + 1}] " if self.runs is None else f"[{number + 1}/{self.runs}] "


def line_prefix(settings: RunSettings) -> str:
    """The beginning of a job's lines, empty for a single run; a ConfigurationError if a sweep cannot have this run."""
    config = HydraConfig.get()
    if config.mode != RunMode.MULTIRUN:
        return ""
    devices, nodes = settings.trainer.get("devices", 1), settings.trainer.get("num_nodes", 1)
    if (devices, nodes) != (1, 1):
        raise ConfigurationError(
            f"trainer.devices={devices} and trainer.num_nodes={nodes} may ask for several processes, each of which "
            "repeats the sweep; leave out -m and start one run at a time"
        )
    if _optimises(config):
        check_objective(settings.objective, settings.data.get("validation_fraction"), config.sweeper.get("direction"))
    return Sweep.current.line_prefix(int(config.job.num)) if Sweep.current else ""


def objective(settings: RunSettings, record: Record | None) -> float | None:
    """The value that a sweeper optimises; None if no sweeper optimises, or if this process has no record."""
    return measured(settings.objective, record) if record and _optimises(HydraConfig.get()) else None


def measured(objective: str | None, record: Record) -> float:
    """The metric `objective` of a run, or its main metric; a ConfigurationError if the run has not measured it."""
    wanted = objective or ("dev/bleu" if "dev" in record.metrics else "validation/accuracy")
    split, _, name = wanted.partition("/")
    if name not in record.metrics.get(split, {}):
        names = [f"{split}/{name}" for split in record.metrics if split != "test" for name in record.metrics[split]]
        raise ConfigurationError(f"objective={wanted} was not measured; there are {', '.join(names)}")
    return record.metrics[split][name]


def check_objective(objective: str | None, validation_fraction: float | None, direction: str | None) -> None:
    """Raise a ConfigurationError if a sweep would choose settings on the test split, has no split for the choice, or
    would look for the largest loss.

    `validation_fraction` is None if the data set has a split of its own for the choice. The `direction` is Optuna's,
    `maximize` or `minimize`; None for another sweeper.
    """
    if objective is not None and direction == "maximize" and metric(objective).lower_is_better:
        raise ConfigurationError(f"objective={objective} is better lower; give hydra.sweeper.direction=minimize")
    if objective is not None and objective.startswith("test/"):
        raise ConfigurationError(
            f"objective={objective} is not allowed: nothing is chosen on the test split; give validation/METRIC"
        )
    if validation_fraction == 0:
        raise ConfigurationError(
            "data.validation_fraction=0 leaves nothing to choose settings on; give data.validation_fraction=SHARE"
        )


def _optimises(hydra_config: DictConfig) -> bool:
    return hydra_config.mode == RunMode.MULTIRUN and not hydra_config.sweeper._target_.endswith(".BasicSweeper")


def _number_of_runs(config: DictConfig) -> int | None:
    sweeper = config.hydra.sweeper
    if "n_trials" in sweeper:
        return int(sweeper.n_trials)
    return math.prod(sum(1 for _ in one.sweep_iterator()) for one in _overrides(config) if one.is_sweep_override())


def _overrides(config: DictConfig) -> list[Override]:
    params = [f"{key}={value}" for key, value in (config.hydra.sweeper.get("params") or {}).items()]
    task = OmegaConf.to_container(config.hydra.overrides.task)  # a value such as ${name} is not resolved
    return OverridesParser.create(GlobalHydra.instance().config_loader()).parse_overrides([*params, *task])


@functools.cache  # a worker has many jobs
def _end_with(parent: int) -> None:
    """End this process when its parent has ended. Otherwise joblib's workers would wait for minutes."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
