"""Trials of a stage: as many as fit in its time, each repeatable by its seed."""

import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from stress.outcome import Outcome

AT_A_TIME = 2  # trials side by side
EVERY = 20.0  # seconds between two lines of progress

Trial = Callable[[random.Random], None]  # returns where all ended as promised, else raises


class Lost(Exception):
    """A row, a record or a checkpoint is lost, half-written or left over."""


class Wrong(Exception):
    """A number is wrong, or other data or weights were used, and nothing says so."""


def repeat(stage: str, what: str, prepare: Callable[[Path], Trial], seconds: float, seed: int) -> Outcome:
    """The outcome of a stage that starts trials for so many seconds; there is at least one trial.

    The first trial draws from `seed`, the others from seeds drawn by it: `python -m stress STAGE --minutes 0 --seed
    SEED_OF_THE_TRIAL` repeats any of them.

    Args:
        stage: its name.
        what: is tried, in a few words.
        prepare: gives the trial, which works in the folder given.
        seconds: for preparing and for trials.
        seed: a whole number.
    """
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="sharmix-stress-", ignore_cleanup_errors=True) as home:
        return summary(stage, what, prepare(Path(home)), _until(end, stage, seeds(seed)))


def seeds(first: int) -> Iterator[int]:
    """The seeds of a stage's trials."""
    yield first
    draw = random.Random(first)
    while True:
        yield draw.randrange(2**32)


def summary(stage: str, what: str, trial: Trial, chosen: Iterable[int]) -> Outcome:
    """The outcome of the trials with these seeds."""
    outcome = Outcome(what)
    at_work: dict[Future[None], int] = {}
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for seed in chosen:
            at_work[pool.submit(trial, random.Random(seed))] = seed
            if len(at_work) == AT_A_TIME:
                _count(outcome, stage, at_work, wait(at_work, return_when=FIRST_COMPLETED).done)
        _count(outcome, stage, at_work, wait(at_work).done)
    return outcome


def _until(end: float, stage: str, numbers: Iterator[int]) -> Iterator[int]:
    yield next(numbers)
    told, done = time.monotonic(), 1
    while (now := time.monotonic()) < end:
        if now - told >= EVERY:
            print(f"{stage}: {done} trials started, {end - now:.0f} s left", file=sys.stderr, flush=True)
            told = now
        yield next(numbers)
        done += 1


def _count(outcome: Outcome, stage: str, at_work: dict[Future[None], int], ended: set[Future[None]]) -> None:
    for future in ended:
        seed, error = at_work.pop(future), future.exception()
        outcome.tried += 1
        outcome.survived += error is None
        outcome.lost += isinstance(error, Lost)
        outcome.wrong += isinstance(error, Wrong)
        if error is not None:
            how = f"{type(error).__name__.lower()}: {error} [python -m stress {stage} --minutes 0 --seed {seed}]"
            outcome.failures.append(how)
            print(f"{stage}: {how}", file=sys.stderr, flush=True)
