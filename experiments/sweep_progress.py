"""The progress of a sweep in its folder: the number of planned runs, a line for each ended run, and the failures.

While a sweep is at work, or after it was killed, the file `.ended-<process>` holds all of this. After a sweep with
failed runs, `failed.txt` lists the failures, until the next sweep in the folder.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from experiments.files import has_ended

REPORT = ".ended-"  # start of the name of a sweep's file
FAILURES = "failed.txt"
ENDED = "ended"
_PLANNED = "planned "  # start of the first line
_FAILED = "  "  # start of a failed run's line
_BETWEEN = "\t"  # separates the run's settings, the reason and the folder


class Failure(NamedTuple):
    """A run that has failed.

    Attributes:
        run: its settings, as they were given.
        reason: the first line of the error.
        folder: the folder for its files.
    """

    run: str
    reason: str
    folder: Path


@dataclass(frozen=True)
class SweepProgress:
    """The progress of a sweep.

    Attributes:
        planned: the number of its runs; None if it is not known.
        ended: the number of runs that have finished or failed.
        failures: the runs that have failed.
        at_work: whether its process may still be at work.
    """

    planned: int | None
    ended: int
    failures: list[Failure]
    at_work: bool


def planned_line(runs: int | None) -> str:
    """The first line of a sweep's file."""
    return f"{_PLANNED}{runs}\n"


def failed_line(name: str, error: object, folder: str) -> str:
    """The line of a run that has failed: the settings that were given, the error, and the run's folder."""
    reason = str(error).strip().split("\n")[0].replace(_BETWEEN, " ")
    return f"{_FAILED}{_BETWEEN.join((name, reason, folder))}\n"


def is_of_a_run(line: str) -> bool:
    """Whether a line belongs to a run that has ended."""
    return line == ENDED or is_failure(line)


def is_failure(line: str) -> bool:
    """Whether a line belongs to a run that has failed."""
    return line.startswith(_FAILED)


def shown(line: str) -> str:
    """The line of a failed run in the form for people."""
    return ": ".join(line.split(_BETWEEN)[:2])


def read_sweeps(folder: Path) -> list[SweepProgress]:
    """The progress of the sweeps in a folder: sweeps at work, killed sweeps, and the last ended sweep's failures.

    Raises:
        OSError: a file cannot be read.
        UnicodeDecodeError: a file is damaged.
    """
    sweeps = []
    for file in sorted([*folder.glob(f"{REPORT}*"), *folder.glob(FAILURES)]):
        try:
            lines = file.read_text("utf-8").splitlines()
        except FileNotFoundError:  # its sweep has just ended
            continue
        planned = next((line.removeprefix(_PLANNED) for line in lines if line.startswith(_PLANNED)), "")
        failures = [line.removeprefix(_FAILED).split(_BETWEEN) for line in lines if is_failure(line)]
        sweeps.append(
            SweepProgress(
                planned=int(planned) if planned.isdecimal() else None,
                ended=sum(map(is_of_a_run, lines)),
                failures=[Failure(one[0], one[1], Path(one[2])) for one in failures if len(one) == 3],
                at_work=file.name.startswith(REPORT) and not has_ended(file.name.removeprefix(REPORT)),
            )
        )
    return sweeps
