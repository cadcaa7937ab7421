"""What a sweep says: which of its runs is at work, the time left, and which have failed."""

import math
import sys
import time
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn, JobStatus
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig

from experiments.errors import ConfigurationError
from experiments.settings import RunSettings

_report: "SweepReport | None" = None  # of the sweep that this process starts, or of the job that it runs


class SweepReport(Callback):
    """Hydra calls it around a sweep and its jobs; the jobs' processes have copies of it."""

    def __init__(self) -> None:
        self.runs: int | None = None
        self.began = time.time()
        self.failures = Path()

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        self.runs = _number_of_runs(config)
        self.failures = Path(config.hydra.sweep.dir).resolve() / f".failed-{time.time_ns()}"
        _set_report(self)

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        _set_report(self)

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        if self.runs is not None and job_return.status == JobStatus.FAILED:
            name = " ".join(job_return.overrides or [])
            reason = str(job_return._return_value).strip().split("\n")[0]
            self.failures.parent.mkdir(parents=True, exist_ok=True)
            with self.failures.open("a") as file:  # one write, so that lines of several processes stay whole
                file.write(f"  {name}: {reason}\n")

    def place(self, number: int) -> str:
        """Which run of the sweep the job of a number is, from 0, and how long the rest may take."""
        of = f"/{self.runs}" if self.runs else ""
        left = ""
        if self.runs and number:
            seconds = (time.time() - self.began) / number * (self.runs - number)
            left = f", {math.ceil(seconds / 60)} min left" if seconds >= 60 else f", {seconds:.0f} s left"
        return f"\\[{number + 1}{of}{left}] "  # escaped, for brackets are rich's markup


def place_in_sweep() -> str:
    """The beginning of every line that a job of a sweep prints; empty for a run on its own."""
    config = HydraConfig.get()
    if config.mode != RunMode.MULTIRUN or _report is None:
        return ""
    return _report.place(int(config.job.num))


def is_optimising() -> bool:
    """Whether a sweeper chooses settings by the objective that runs return."""
    config = HydraConfig.get()
    return config.mode == RunMode.MULTIRUN and not config.sweeper._target_.endswith(".BasicSweeper")


def report_failures() -> None:
    """Name the failed runs of the sweep that this process has started."""
    if _report is not None and _report.failures.is_file():
        lines = _report.failures.read_text()
        _report.failures.unlink()
        print(f"failed runs of the sweep, {lines.count(chr(10))} of {_report.runs}:\n{lines}", file=sys.stderr, end="")


def refuse_several_processes(settings: RunSettings) -> None:
    """Raise a ConfigurationError if a job of a sweep asks for several processes.

    Each process but the first starts the whole command line again, and would run the whole sweep.
    """
    devices, nodes = settings.trainer.get("devices", 1), settings.trainer.get("num_nodes", 1)
    if (devices, nodes) != (1, 1):
        raise ConfigurationError(
            f"trainer.devices={devices} and trainer.num_nodes={nodes} may ask for several processes, each of which "
            "repeats the sweep; leave out -m and start one run at a time"
        )


def _set_report(report: SweepReport) -> None:
    global _report
    _report = report


def _number_of_runs(config: DictConfig) -> int | None:
    sweeper = config.hydra.sweeper
    if "n_trials" in sweeper:
        return int(sweeper.n_trials)
    params = [f"{key}={value}" for key, value in (sweeper.get("params") or {}).items()]
    overrides = OverridesParser.create().parse_overrides([*params, *config.hydra.overrides.task])
    return math.prod(sum(1 for _ in one.sweep_iterator()) for one in overrides if one.is_sweep_override())
