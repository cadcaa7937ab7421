"""The messages of a sweep: the number of the current run, the time left, and the failed runs."""

import contextlib
import importlib.util
import math
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, ClassVar

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn, JobStatus
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments.errors import ConfigurationError
from experiments.files import has_ended, remove_empty_folders, this_process, write_atomically
from experiments.interruption import AT_START, listen, listen_alone
from experiments.job import check_objective
from experiments.settings import RunSettings
from experiments.sweep_progress import (
    ENDED,
    FAILURES,
    REPORT,
    failed_line,
    is_failure,
    is_of_a_run,
    planned_line,
    shown,
)

_SLURM = ("hydra_submitit_launcher", "hydra-submitit-launcher")
_RAY = ("hydra_ray_launcher", "hydra-ray-launcher ray 'joblib<1.6'")
_OPTUNA = ("hydra_optuna_sweeper", "hydra-optuna-sweeper 'sqlalchemy<2' 'alembic<1.20'")
PLUGINS = {  # for each choice that `make setup` does not install: its module, and the packages to install
    "hydra/launcher=slurm": _SLURM,
    "hydra/launcher=slurm_here": _SLURM,
    "hydra/launcher=submitit_slurm": _SLURM,
    "hydra/launcher=submitit_local": _SLURM,
    "hydra/launcher=ray": _RAY,
    "hydra/launcher=ray_cluster": _RAY,
    "hydra/sweeper=optuna": _OPTUNA,
    "hydra/sweeper=optuna_orders": _OPTUNA,
}


class SweepReport(Callback):
    """Hydra calls it around a sweep and its jobs; the jobs' processes have copies of it.

    When a job ends, it adds a line to a file in the sweep's folder, because the processes share only files.
    """

    at_work: "ClassVar[SweepReport | None]" = None  # the report of the sweep that this process starts, or of its job

    def __init__(self) -> None:
        self.runs: int | None = None
        self.began = time.time()
        self.ended = self.outputs = Path()
        self.process = os.getpid()  # of the sweep

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        self.runs = _number_of_runs(config)
        if self.runs == 0:
            print("the sweep has no run: one of its settings has no value, as seed=range(0) has", file=sys.stderr)
            raise SystemExit(1)
        if _optimises(config.hydra):
            _refuse_objective(config)
        try:
            folder, self.outputs = Path(config.hydra.sweep.dir).resolve(), Path(config.paths.outputs).resolve()
            folder.mkdir(parents=True, exist_ok=True)
            for file in folder.glob(f"{REPORT}*"):
                if has_ended(file.name.removeprefix(REPORT)):  # its sweep was killed
                    file.unlink(missing_ok=True)
            (folder / FAILURES).unlink(missing_ok=True)  # of the previous sweep
            ended = folder / f"{REPORT}{this_process()}"
            ended.write_text(planned_line(self.runs), "utf-8")
        except (OmegaConfBaseException, OSError):  # Hydra would turn it into a warning; the sweeper raises it again
            return
        self.ended = ended
        SweepReport.at_work = self
        if config.hydra.launcher.get("_target_", "").endswith("JoblibLauncher"):
            resource_tracker.ensure_running()  # its start unblocks all signals
            listen_alone()  # so that Ctrl-C does not reach the workers
        if "submitit_folder" in config.hydra.launcher:
            logs = os.path.relpath(Path(config.hydra.launcher.submitit_folder).parent)
            print(f"runs as jobs of their own, {self.runs or 'some'} in all; what they print: {logs}/JOB/", flush=True)

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        if "submitit_folder" in config.hydra.launcher:
            print(f"finished runs of the sweep: {sum(line == ENDED for line in self.lines())}")
        if _optimises(config.hydra):
            best = OmegaConf.load(Path(config.hydra.sweep.dir) / "optimization_results.yaml")
            settings = " ".join(f"{key}={value}" for key, value in best.best_params.items())
            print(f"best of the study: {settings}, objective {best.best_value:.4f}")

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        SweepReport.at_work = self
        if multiprocessing.current_process().name.startswith("LokyProcess"):  # a worker of joblib
            listen()
            _end_with(self.process)
        if self.runs is not None and not config.hydra.job.chdir:
            os.chdir(config.hydra.runtime.cwd)  # paths of data may be relative, and a worker may start elsewhere

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        if self.runs is None:
            return
        line = f"{ENDED}\n"
        if job_return.status == JobStatus.FAILED:
            name = " ".join(job_return.overrides or [])
            line = failed_line(name, job_return._return_value, config.hydra.runtime.output_dir)
        with self.ended.open("a", encoding="utf-8") as file:  # one write, so that lines of processes do not mix
            file.write(line)

    def place(self, number: int) -> str:
        """The place of a job in its sweep, from the job's number (from 0), and an estimate of the time left."""
        ended, of, left = len(self.lines()), f"/{self.runs}" if self.runs else "", ""
        if self.runs and ended:
            seconds = (time.time() - self.began) / ended * (self.runs - ended)
            left = f", {math.ceil(seconds / 60)} min left" if seconds >= 60 else f", {seconds:.0f} s left"
        return f"\\[{number + 1}{of}{left}] "  # escaped, because brackets are rich's markup

    def lines(self) -> list[str]:
        """A line for each run that has ended."""
        lines = self.ended.read_text("utf-8").splitlines() if self.ended.is_file() else []
        return [line for line in lines if is_of_a_run(line)]


def place_in_sweep() -> str:
    """The beginning of every line that a job of a sweep prints; empty for a single run."""
    config, report = HydraConfig.get(), SweepReport.at_work
    in_sweep = config.mode == RunMode.MULTIRUN and report is not None
    return report.place(int(config.job.num)) if in_sweep else ""


def is_optimising() -> bool:
    """Whether a sweeper chooses settings by the objective that runs return."""
    config = HydraConfig.get()
    return config.mode == RunMode.MULTIRUN and _optimises(config)


def report_failures() -> bool:
    """Print the failed runs of the sweep that this process has started, and return whether there are any."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    report = SweepReport.at_work
    if report is None or report.ended == Path():
        return False
    failed = [line for line in report.lines() if is_failure(line)]
    folder = report.ended.parent
    if failed:
        with contextlib.suppress(OSError):  # they are printed too
            write_atomically(folder / FAILURES, "".join(f"{line}\n" for line in failed))
        print(
            f"failed runs of the sweep, {len(failed)} of {report.runs}:", *map(shown, failed), sep="\n", file=sys.stderr
        )
    report.ended.unlink(missing_ok=True)
    remove_empty_folders(folder, report.outputs, ignored=["multirun.yaml", FAILURES])
    return bool(failed)


def how_it_goes_on() -> str:
    """How to continue after an interrupt outside of a training."""
    sweep = SweepReport.at_work is not None and SweepReport.at_work.ended != Path()
    return "the same command skips the finished runs and goes on with the others" if sweep else AT_START


def refuse_several_processes(settings: RunSettings) -> None:
    """Raise a ConfigurationError if a job of a sweep asks for several processes.

    Each further process repeats the whole command line, so it would run the whole sweep.
    """
    devices, nodes = settings.trainer.get("devices", 1), settings.trainer.get("num_nodes", 1)
    if (devices, nodes) != (1, 1):
        raise ConfigurationError(
            f"trainer.devices={devices} and trainer.num_nodes={nodes} may ask for several processes, each of which "
            "repeats the sweep; leave out -m and start one run at a time"
        )


def missing_packages(arguments: Sequence[str]) -> str | None:
    """The packages to install, if a command line chooses a launcher or sweeper whose package is missing."""
    for argument in arguments:
        module, packages = PLUGINS.get(argument, (None, None))
        if module and importlib.util.find_spec(f"hydra_plugins.{module}") is None:
            return f"{argument} needs packages that are not installed: pip install {packages}"
    return None


def _end_with(parent: int) -> None:
    """End this process when its parent has ended. Otherwise joblib's workers would wait for minutes."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    if not any(thread.name == "watch the parent" for thread in threading.enumerate()):
        threading.Thread(target=watch, name="watch the parent", daemon=True).start()


def _optimises(hydra_config: DictConfig) -> bool:
    return not hydra_config.sweeper._target_.endswith(".BasicSweeper")


def _refuse_objective(config: DictConfig) -> None:
    """Exit before the first trial if there is no split for the choice; Hydra would turn an error into a warning."""
    try:
        check_objective(config.objective, config.data.get("validation_fraction"))
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        raise SystemExit(1) from error


def _number_of_runs(config: DictConfig) -> int | None:
    sweeper = config.hydra.sweeper
    if "n_trials" in sweeper:
        return int(sweeper.n_trials)
    params = [f"{key}={value}" for key, value in (sweeper.get("params") or {}).items()]
    task = OmegaConf.to_container(config.hydra.overrides.task)  # a value such as ${name} is not resolved
    overrides = OverridesParser.create().parse_overrides([*params, *task])
    return math.prod(sum(1 for _ in one.sweep_iterator()) for one in overrides if one.is_sweep_override())
