"""One job of the runner: skip a run that has finished, or finish it."""

import contextlib
import os
from pathlib import Path

from rich.console import Console

from experiments.errors import ConfigurationError
from experiments.failures import machine_failures
from experiments.folder_lock import held
from experiments.identity import code_of, run_id
from experiments.interruption import postponed
from experiments.record import Record
from experiments.run_folder import RECORD, record_of, tidy
from experiments.settings import RunSettings

HEADLINES = {"bleu": "BLEU {:.2f}", "accuracy": "accuracy {:.4f}", "sparsity": "sparsity {:.3f}"}
_RANKS = ("RANK", "SLURM_PROCID", "LOCAL_RANK", "NODE_RANK")  # a process's number in torchrun, SLURM or Lightning


def perform(settings: RunSettings, folder: Path, prefix: str = "") -> Record | None:
    """Produce the record of the run in `folder`: skip a finished run, else train from the last checkpoint.

    If another process works in the same folder, this process waits. Afterwards it skips the finished run, or it
    continues the training of a killed process. Returns and raises as `training.train`; raises a MachineError for a
    failure of the machine. A `prefix` begins each printed line.
    """
    with machine_failures(folder), _turn(folder, prefix):
        return _perform(settings, folder, prefix)


def _turn(folder: Path, prefix: str) -> contextlib.AbstractContextManager[None]:
    """Wait for another process that is at work in the folder. Of a run's processes, only the first one waits."""
    if _is_not_first():
        return contextlib.nullcontext()
    waits = f"{prefix}waits for another process, which is at work on this run: {folder}"
    return held(folder, lambda: Console(highlight=False, soft_wrap=True).print(waits))


def _is_not_first() -> bool:
    """Whether this is one of several processes of a run, and not the first of them."""
    return any(os.environ.get(number, "0") != "0" for number in _RANKS)


def _perform(settings: RunSettings, folder: Path, prefix: str) -> Record | None:
    console = Console(highlight=False, soft_wrap=True)
    title = f"{settings.name} {folder.parent.name} seed {settings.seed}"
    record_file = folder / RECORD
    if record_file.is_dir():
        raise ConfigurationError(f"{record_file}: a folder stands in the place of the record; move it away")
    if record_file.exists() and not settings.force:
        if _is_not_first():
            return None
        record = record_of(folder)
        if (record.run_id, record.seed) != (run_id(settings.model_dump()), settings.seed):  # by hydra.run.dir
            raise ConfigurationError(f"{record_file}: another run has its record there; give this one another folder")
        tidy(folder, record)
        same_code = record.code.digest == code_of(settings.model_dump())["digest"]
        note = "" if same_code else " [yellow](by other code; force=true repeats it)[/]"
        console.print(f"{prefix}[green]finished before[/] {title}{note}: {record_file}")
        if any(settings.logger.values()):
            from experiments.callbacks.loggers import replay

            replay(settings, folder, record.curves)
        return record

    with postponed():  # an interrupted import may look like a missing package
        import experiments.quick_imports  # noqa: F401  # before other imports of torch; saves seconds
        from experiments.training import train

    new = train(settings, folder, prefix)
    if new is not None:
        test = new.metrics.get("test", {})
        shown = ", ".join(text.format(test[name]) for name, text in HEADLINES.items() if name in test)
        seconds = f"{new.wall_time_seconds:.1f} s"
        console.print(f"{prefix}[bold green]finished[/] {title}: test {shown}, {seconds}, {record_file}")
    return new


def check_objective(objective: str | None, validation_fraction: float | None) -> None:
    """Raise a ConfigurationError if a sweep would choose settings on the test split, or has no split for the choice.

    `objective` is None for the main metric; `validation_fraction` is None if the data set has its own split for the
    choice.
    """
    if objective is not None and objective.startswith("test/"):
        raise ConfigurationError(
            f"objective={objective} is not allowed: nothing is chosen on the test split; give validation/METRIC"
        )
    if validation_fraction == 0:
        raise ConfigurationError(
            "data.validation_fraction=0 leaves nothing to choose settings on; give data.validation_fraction=SHARE"
        )


def objective(settings: RunSettings, record: Record) -> float:
    """The value that a sweeper optimises: `settings.objective`, or the main metric of the validation or dev split.

    Raises:
        ConfigurationError: the run has not measured it.
    """
    metrics = record.metrics
    wanted = settings.objective or ("dev/bleu" if "dev" in metrics else "validation/accuracy")
    split, _, metric = wanted.partition("/")
    if metric not in metrics.get(split, {}):
        measured = ", ".join(f"{name}/{metric}" for name in metrics if name != "test" for metric in metrics[name])
        raise ConfigurationError(f"objective={split}/{metric} was not measured; there are {measured}")
    return metrics[split][metric]
