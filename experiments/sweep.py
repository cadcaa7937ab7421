"""Hydra's jobs: the place of a run in its sweep, and what is said of a run that fails."""

import functools
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
from hydra.core.utils import JobReturn, JobStatus
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from experiments.errors import ConfigurationError
from experiments.messages import message_of, replace_unknown_characters
from experiments.run_folder import remove_empty
from experiments.settings import RunSettings


class Sweep(Callback):
    """Hydra calls it at the start and the end of a sweep and of each job; the jobs' processes have copies of it."""

    current: "ClassVar[Sweep | None]" = None  # the sweep of this process's job

    def __init__(self) -> None:
        self.runs = 0
        self.process = os.getpid()

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        # By sys.exit, here and below, because Hydra only warns of a callback's error.
        if config.hydra.job.chdir:
            sys.exit("hydra.job.chdir=true is not allowed; a run works in the folder where you start it")

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        self.on_run_start(config)
        place = Path(config.hydra.runtime.cwd) / f"{config.paths.outputs}/{config.name}"
        if Path(config.hydra.sweep.dir) != place or config.hydra.sweep.subdir:
            sys.exit("hydra.sweep.dir and hydra.sweep.subdir are not allowed; give paths.outputs=FOLDER for the runs")
        self.runs = _number_of_runs(config)
        if not self.runs:
            sys.exit(f"{' '.join(config.hydra.overrides.task)}: an override names no value, as range(1,1) does")
        if "submitit_folder" in config.hydra.launcher:
            logs = os.path.relpath(Path(config.hydra.launcher.submitit_folder).parent)
            print(f"runs as jobs of their own, {self.runs} in all; what they print: {logs}/JOB/", flush=True)

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        if config.hydra.mode != RunMode.MULTIRUN:
            return
        Sweep.current = self
        replace_unknown_characters()
        if multiprocessing.current_process().name.startswith("LokyProcess"):  # a worker of joblib
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the sweep's own process ends its workers
            _end_with(self.process)
        os.chdir(config.hydra.runtime.cwd)  # paths of data may be relative, and a worker may start elsewhere

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        if job_return.status != JobStatus.FAILED:
            return
        error = job_return._return_value
        error.is_of_run = True  # not of Hydra, which raises it once more
        if config.hydra.mode == RunMode.MULTIRUN:
            run, reason = " ".join(job_return.overrides or []), str(error).strip().partition("\n")[0]
            print(f"failed: {run}: {reason}", file=sys.stderr)
            folder = Path(config.hydra.sweep.dir)  # of the run's experiment; Hydra has made it
            remove_empty(folder, folder)
        elif (message := message_of(error)) is not None:
            sys.exit(message)  # here, because Hydra would print a line about the job before the message


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
    return f"[{int(config.job.num) + 1}/{Sweep.current.runs}] " if Sweep.current else ""


def _number_of_runs(config: DictConfig) -> int:
    params = [f"{key}={value}" for key, value in (config.hydra.sweeper.params or {}).items()]
    task = OmegaConf.to_container(config.hydra.overrides.task)  # a value such as ${name} is not resolved
    overrides = OverridesParser.create(GlobalHydra.instance().config_loader()).parse_overrides([*params, *task])
    return math.prod(sum(1 for _ in one.sweep_iterator()) for one in overrides if one.is_sweep_override())


@functools.cache  # a worker has many jobs
def _end_with(parent: int) -> None:
    """End this process when its parent has ended. Otherwise joblib's workers would wait for minutes."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
