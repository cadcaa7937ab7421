"""Processes that end at any moment: in the middle of a file, between writing and renaming, in a sweep.

The same command then goes on, and must end as if nothing had happened.
"""

import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from uuid import uuid4

from experiments.identity import ROOT
from stress.endings import OPERATION, AtOperation
from stress.outcome import Outcome
from stress.processes import Started, command, last_lines, perform
from stress.runs import RUNS, copied, finished, rebuilding, run_again, small_results, whole_record
from stress.trials import Lost, Trial, Wrong, repeat

WHAT = "runs, sweeps and tables killed at a random time, file operation or byte"


def run(seconds: float, seed: int) -> Outcome:
    return repeat("kills", WHAT, lambda home: Kills(home).trial, seconds, seed)


class Kills:
    """The trials, with the runs and tables that they are compared with."""

    def __init__(
        self, home: Path, prepare: Callable[[], None] | None = None, names: tuple[str, ...] = (*RUNS,)
    ) -> None:
        self.home, self.prepare = home, prepare
        self.runs = {name: finished(home, name) for name in names}

    def trial(self, draw: random.Random) -> None:
        kinds: dict[Trial, int] = {self.kill_run: 30, self.kill_tables: 4, self.kill_command: 1, self.kill_sweep: 1}
        (kind,) = draw.choices([*kinds], [*kinds.values()])
        kind(draw)

    def kill_run(self, draw: random.Random) -> None:
        """One to three kills of a run, at times over a finished one with force=true."""
        name = draw.choice([*self.runs])
        run, force = self.runs[name], draw.random() < 0.3
        outputs = copied(run.outputs, self.home) if force else self.home / uuid4().hex / "outputs"
        more = ("force=true",) if force else ()
        for _ in range(draw.choice((1, 1, 2, 3))):
            self._kill(draw, outputs, command("run.py", *run.at(outputs, *more)), run.printed.count(OPERATION))
            if whole_record(outputs) is None and force:
                raise Lost("force=true: the old record is gone before there is a new one")
        run_again(run, outputs, *more)
        shutil.rmtree(outputs.parent)

    def kill_command(self, draw: random.Random) -> None:
        """A kill of the real command line at a random time."""
        run, outputs = self.runs["digits"], self.home / uuid4().hex / "outputs"
        self._kill_later(draw, Started(outputs.parent, _from_a_shell(*run.at(outputs))), 8.0)
        whole_record(outputs)
        run_again(run, outputs)

    def kill_sweep(self, draw: random.Random) -> None:
        """A kill of a sweep whose runs have processes of their own."""
        run, outputs = self.runs["digits"], self.home / uuid4().hex / "outputs"
        arguments = ("-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", *run.at(outputs), "seed=21,42,63")
        self._kill_later(draw, Started(outputs.parent, _from_a_shell(*arguments)), 15.0)
        status, printed = perform(outputs.parent, _from_a_shell(*arguments))
        if status:
            raise RuntimeError(f"the sweep does not go on: status {status}, {last_lines(printed)!r}")
        for folder in outputs.glob("*/*/seed-*"):
            whole_record(folder)
        (first,) = outputs.glob("*/*/seed-21")
        if len([*outputs.rglob("record.json")]) != 3:
            raise Lost("a run of the sweep has no record")
        run.check(first)

    def kill_tables(self, draw: random.Random) -> None:
        """A kill while tables or figures are rebuilt: all are then old, or all are new."""
        kind = draw.choice(("tables", "tables", "figures"))
        old, new = (small_results(self.home / f"{kind}-{number}", kind, number) for number in (199, 299))
        results = copied(old, self.home)
        shutil.copy(new / "tables.yaml", results)
        rebuild = rebuilding(results, kind)
        contents = [_contents(folder / kind) for folder in (old, new)]
        self._kill(draw, results, rebuild, 3 * len(contents[0]), most=4.0)
        if (found := _contents(results / kind)) not in contents:
            changed = sum(found.get(name) != text for name, text in contents[0].items())
            raise Wrong(f"{changed} of {len(contents[0])} files of {kind} are new, the others old")
        status, printed = perform(results.parent, rebuild)
        if status or _contents(results / kind) != contents[1]:
            raise Lost(f"the {kind} are not rebuilt: status {status}, {last_lines(printed)!r}")
        if left := _names(results) ^ _names(new):
            raise Lost(f"left over: {left}")

    def _kill(
        self, draw: random.Random, folder: Path, function: Callable[[], object], operations: int, most: float = 1.5
    ) -> None:
        """Start a process that is ended by a signal at a random time, file operation or byte, or by a full disk."""
        number = draw.choices((signal.SIGKILL, signal.SIGTERM, signal.SIGINT), (8, 1, 1))[0]
        at = partial(AtOperation, folder, draw.randint(1, operations))
        how = draw.choice(("time", "operation", "byte", "full"))
        prepare: Callable[[], None] | None = {
            "time": None,
            "operation": at(number),
            "byte": at(signal.SIGXFSZ, int(10 ** draw.uniform(0, 4.3))),
            "full": at(None, draw.randint(3_000, 20_000)),
        }[how]
        started = Started(folder.parent, function, partial(_in_turn, self.prepare, prepare))
        if how == "time":
            self._kill_later(draw, started, most, number)
        else:
            _check_end(*started.end())

    def _kill_later(
        self, draw: random.Random, started: Started, most: float, number: signal.Signals = signal.SIGKILL
    ) -> None:
        time.sleep(draw.uniform(0, most))
        started.send(number)
        _check_end(*started.end())


def _from_a_shell(*arguments: str) -> Callable[[], object]:
    """run.py as a new process of Python; a forked one would wait at its end for the workers of a sweep."""
    return partial(os.execv, sys.executable, [sys.executable, str(ROOT / "run.py"), *arguments])


def _check_end(status: int, printed: str) -> None:
    """Raise unless a process that was ended says nothing, or what a user can act on."""
    if "Traceback" in printed:
        raise RuntimeError(f"a traceback at the end, status {status}: {last_lines(printed)!r}")


def _in_turn(*functions: Callable[[], None] | None) -> None:
    for function in functions:
        if function is not None:
            function()


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("[!.]*")} if folder.is_dir() else {}


def _names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}
