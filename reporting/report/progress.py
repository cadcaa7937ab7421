"""The state of the runs below a folder of outputs: finished, running, failed or stopped, and an estimate of time left.

This module writes nothing. It recognises a run's folder by the run's files, or by the name that `run.py` chooses.
"""

import contextlib
import csv
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from math import isfinite
from pathlib import Path
from statistics import median

import yaml

from experiments.files import is_unfinished
from experiments.folder_lock import is_held
from experiments.record import Record, RecordError, load_record
from experiments.run_folder import CURVES, RECORD
from experiments.sweep_progress import FAILURES, REPORT, Failure, SweepProgress, read_sweeps

_NAME = re.compile(r"(?P<activation>.+)-(?P<run_id>[0-9a-f]{12})/seed-(?P<seed>\d+)$")


class State(StrEnum):
    """The state of a run."""

    FINISHED = "finished"
    RUNNING = "running"
    FAILED = "failed"
    STOPPED = "stopped"
    OPEN = "open"


@dataclass(frozen=True)
class Unfinished:
    """A run without a record.

    Attributes:
        state: running, failed or stopped.
        name: of its folder, below the outputs.
        experiment: the name of the experiment's folder; empty if it is not known.
        activation: the name of its activation; empty if it is not known.
        run_id: the hash of its settings; empty if it is not known.
        seed: its seed; None if it is not known.
        rows: the rows of its curves so far.
        of: its planned number of epochs, from finished runs of its experiment or from the settings of its sweep; None
            if it is not known.
        reason: the first line of the error of a run that has failed; empty for others.
        given: the settings that the command line gave to a run that has failed; empty for others.
    """

    state: State
    name: str
    experiment: str = ""
    activation: str = ""
    run_id: str = ""
    seed: int | None = None
    rows: list[dict[str, float]] = field(default_factory=list)
    of: int | None = None
    reason: str = ""
    given: str = ""

    @property
    def share(self) -> float:
        """The finished share of its epochs."""
        return min(1.0, len(self.rows) / self.of) if self.of else 0.0


@dataclass(frozen=True)
class Progress:
    """All runs below a folder of outputs.

    Attributes:
        records: of the finished runs, by experiment.
        unfinished: the other runs that have begun.
        open: how many planned runs of the sweeps have not begun.
        at_work: whether a sweep may be at work.
        damaged: one sentence about each file that cannot be read.
    """

    records: dict[str, list[Record]]
    unfinished: list[Unfinished]
    open: int
    at_work: bool
    damaged: list[str]

    def counts(self) -> dict[State, int]:
        """The number of runs in each state."""
        found = Counter(run.state for run in self.unfinished)
        finished = sum(map(len, self.records.values()))
        return {State.FINISHED: finished, **{state: found[state] for state in [*State][1:4]}, State.OPEN: self.open}

    def seconds_left(self) -> float | None:
        """Estimated time of the running, stopped and open runs, as many at once as now, from the time of finished runs.

        None if nothing is left, or no run has finished.
        """
        counts = self.counts()
        every = [record.wall_time_seconds for records in self.records.values() for record in records]
        if not every or not (counts[State.RUNNING] or counts[State.STOPPED] or self.open):
            return None
        seconds = self.open * median(every)
        for run in self.unfinished:
            if run.state is State.FAILED:
                continue
            own = [record.wall_time_seconds for record in self.records.get(run.experiment, [])]
            seconds += median(own or every) * (1 - run.share)
        return seconds / max(1, counts[State.RUNNING])


def read_progress(outputs: Path) -> Progress:
    """Read the state of the runs below a folder.

    Args:
        outputs: the folder that holds the runs' folders.

    Raises:
        RecordError: there is no such folder, or no run in it.
    """
    damaged: list[str] = []
    folders, sweeps = _found(outputs, damaged)
    failures = {failure.folder.resolve(): failure for sweep in sweeps for failure in sweep.failures}
    records: dict[str, list[Record]] = {}
    unfinished = []
    seen: dict[tuple[str, int], Path] = {}
    for folder in folders:
        if (folder / RECORD).is_file():
            failures.pop(folder.resolve(), None)
            if record := _record(folder, seen, damaged):
                records.setdefault(record.experiment, []).append(record)
        else:
            unfinished.append((folder, _rows(folder, damaged), failures.pop(folder.resolve(), None)))
    epochs = _planned_epochs(outputs) | {name: max(one.last_epoch for one in of) for name, of in records.items()}
    runs = [_unfinished(folder, outputs, rows, failure, epochs) for folder, rows, failure in unfinished]
    runs += [_without_folder(failure, outputs) for failure in failures.values()]
    if not (records or runs or damaged or sweeps):
        raise RecordError(f"{outputs}: there is no run below it; start one, or name another folder with --outputs")
    return Progress(
        {name: sorted(records[name], key=lambda record: record.seed) for name in sorted(records)},
        sorted(runs, key=lambda run: ([*State].index(run.state), run.name)),
        _open(sweeps, runs),
        any(sweep.at_work for sweep in sweeps),
        damaged,
    )


def _found(outputs: Path, damaged: list[str]) -> tuple[list[Path], list[SweepProgress]]:
    """The folders of runs, and the progress of sweeps."""
    if not outputs.is_dir():
        raise RecordError(f"{outputs}: no such folder; name the one that holds the runs with --outputs")
    folders, sweeps = [], []

    def say(error: OSError) -> None:
        damaged.append(f"{error.filename}: cannot be read ({error.strerror})")

    for place, below, files in os.walk(outputs, onerror=say):
        folder = Path(place)
        below[:] = sorted(name for name in below if not is_unfinished(Path(name)))
        if _NAME.search(folder.as_posix()) or {RECORD, CURVES} & set(files):
            folders.append(folder)
        if any(name == FAILURES or name.startswith(REPORT) for name in files):
            try:
                sweeps += read_sweeps(folder)
            except (OSError, UnicodeDecodeError) as error:
                damaged.append(f"{folder}: what its sweep has left cannot be read ({error})")
    return folders, sweeps


def _record(folder: Path, seen: dict[tuple[str, int], Path], damaged: list[str]) -> Record | None:
    try:
        record = load_record(folder / RECORD)
    except RecordError as error:
        damaged.append(str(error))
        return None
    run = record.run_id, record.seed
    if run in seen:
        damaged.append(f"{folder / RECORD}: the same run is recorded in {seen[run]}, and that one is shown")
        return None
    seen[run] = folder
    return record


def _rows(folder: Path, damaged: list[str]) -> list[dict[str, float]]:
    file = folder / CURVES
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            rows = [{name: float(value) for name, value in row.items() if value} for row in csv.DictReader(lines)]
        if any(row.get("epoch") != place for place, row in enumerate(rows, 1)):
            raise ValueError("its epochs are not 1, 2, 3, …")
        if not all(isfinite(value) for row in rows for value in row.values()):
            raise ValueError("a number is not finite")
        return [row | {"epoch": place} for place, row in enumerate(rows, 1)]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, AttributeError, csv.Error) as error:
        damaged.append(f"{file}: not the curves of a run ({error}); the run writes them anew")
        return []


def _planned_epochs(outputs: Path) -> dict[str, int]:
    """The epochs in the settings of each experiment's last sweep, if Hydra's file about the sweep can be read."""
    planned = {}
    for file in outputs.glob("*/multirun.yaml"):
        with contextlib.suppress(OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError):
            settings = yaml.safe_load(file.read_text("utf-8"))
            if settings["name"] == file.parent.name and type(settings["trainer"]["max_epochs"]) is int:
                planned[file.parent.name] = settings["trainer"]["max_epochs"]
    return planned


def _unfinished(
    folder: Path, outputs: Path, rows: list[dict[str, float]], failure: Failure | None, epochs: dict[str, int]
) -> Unfinished:
    named = _NAME.search(folder.as_posix())
    known = named.groupdict() if named else {}
    name = folder.relative_to(outputs)
    experiment = name.parts[0] if len(name.parts) > 1 else ""
    state = State.RUNNING if is_held(folder) else State.FAILED if failure else State.STOPPED
    return Unfinished(
        state,
        name.as_posix(),
        experiment,
        known.get("activation", "").rpartition("/")[2],
        known.get("run_id", ""),
        int(known["seed"]) if known else None,
        rows,
        epochs.get(experiment),
        failure.reason if failure and state is State.FAILED else "",
        failure.run if failure and state is State.FAILED else "",
    )


def _without_folder(failure: Failure, outputs: Path) -> Unfinished:
    """A run that failed before it wrote any file."""
    folder = failure.folder.resolve()
    inside = folder.relative_to(outputs.resolve()).as_posix() if folder.is_relative_to(outputs.resolve()) else ""
    name = inside or failure.folder.as_posix()
    return Unfinished(State.FAILED, name, inside.partition("/")[0], reason=failure.reason, given=failure.run)


def _open(sweeps: list[SweepProgress], runs: list[Unfinished]) -> int:
    planned = sum(sweep.planned - sweep.ended for sweep in sweeps if sweep.planned is not None)
    begun = sum(run.state in (State.RUNNING, State.STOPPED) for run in runs)
    return max(0, planned - begun)


def unfinished_of(progress: Progress) -> Iterator[Unfinished]:
    """The unfinished runs that have numbers to draw."""
    return (run for run in progress.unfinished if run.rows and run.activation and run.experiment)
