"""Processes for trials, forked from one that has imported all that takes seconds, so that a run takes one second."""

import contextlib
import ctypes
import multiprocessing
import os
import resource
import runpy
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil

from experiments.errors import UserError
from experiments.identity import ROOT

PATIENCE = 60.0  # seconds until a process counts as hanging
MEMORY = 2 * 2**30  # bytes that a process may take beside what it has at its start
MOST_PROCESSES = 40  # that one may start
_PR_SET_PDEATHSIG = 1
_POLLING = threading.Lock()  # starting a process polls all others: of two that poll one, the second gets a wrong status
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    [
        *("experiments.quick_imports", "experiments.training", "experiments.modules.classifier"),
        *("experiments.modules.translator", "experiments.networks.embedding_bag", "experiments.networks.perceptron"),
        *("experiments.networks.transformer", "reporting.tables", "matplotlib.pyplot", "pyarrow.parquet"),
        *(f"experiments.data.{name}" for name in ("airline", "cifar100", "copying", "digits", "imagenet")),
        "experiments.data.parallel_corpus",
    ]
)


class Hang(Exception):
    """A process has not ended in its time, or others have not ended with it."""


class Started:
    """A function in a process of its own, at the head of a session of its own.

    Args:
        folder: where it runs, and where what it prints is kept.
        function: what it does after `prepare`; a UserError is printed, as the command lines do.
        prepare: called in the process before.
    """

    def __init__(self, folder: Path, function: Callable[[], object], prepare: Callable[[], None] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.printed = folder / f"printed-{uuid4().hex}"
        ready, tell = _SERVER.Pipe(duplex=False)
        self.process = _SERVER.Process(target=_enter, args=(self.printed, function, prepare, tell))
        with _POLLING:
            self.process.start()
        tell.close()
        with contextlib.suppress(EOFError):
            ready.recv()

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._id, number)

    def end(self, seconds: float = PATIENCE) -> tuple[int, str]:
        """The exit status, negative where a signal has ended it, and what it has printed; removes the print.

        Raises:
            Hang: it is at work after so many seconds, starts dozens of processes, or is outlived by one of them.
        """
        deadline, amiss = time.monotonic() + seconds, None
        while self._status() is None and amiss is None:
            time.sleep(0.05)
            if time.monotonic() > deadline:
                amiss = f"nothing after {seconds:.0f} s"
            elif (count := len(self._session())) > MOST_PROCESSES:
                amiss = f"starts {count} processes"
        grace = time.monotonic() + 10
        while amiss is None and (left := len(self._session())):
            if time.monotonic() > grace:
                amiss = f"{left} processes outlive the one that started them by 10 s"
            time.sleep(0.1)
        for number in self._session():
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        while (status := self._status()) is None:
            time.sleep(0.05)
        text = self.printed.read_text(errors="replace")
        self.printed.unlink()
        if amiss is not None:
            raise Hang(f"{amiss}; printed {last_lines(text)!r}")
        return status, text

    def _status(self) -> int | None:
        with _POLLING:
            return self.process.exitcode

    @property
    def _id(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def _session(self) -> list[int]:
        """The processes of its session that are at work."""
        found = []
        for number in psutil.pids():
            with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
                if os.getsid(number) == self._id and psutil.Process(number).status() != psutil.STATUS_ZOMBIE:
                    found.append(number)
        return found


def command(name: str, *arguments: str) -> Callable[[], object]:
    """What `python NAME ARGUMENTS` does, or `python -m NAME ARGUMENTS` where the name is no file's."""
    return partial(_run, name, arguments)


def perform(folder: Path, function: Callable[[], object], **options: Any) -> tuple[int, str]:
    """The exit status of a function in a process of its own, and what it has printed."""
    return Started(folder, function, **options).end()


def last_lines(text: str, most: int = 300) -> str:
    """The end of what a process has printed."""
    return text.strip()[-most:]


def _enter(printed: Path, function: Callable[[], object], prepare: Callable[[], None] | None, tell: Any) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # ends with the campaign
    os.setsid()
    os.chdir(printed.parent)
    multiprocessing.set_start_method(None, force=True)  # the usual one, for the processes that read data
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    sys.stdout = sys.stderr = file = printed.open("a", buffering=1)
    for stream in (1, 2):
        os.dup2(file.fileno(), stream)
    tell.send("ready")
    tell.close()
    if prepare is not None:
        prepare()
    try:
        function()
    except UserError as error:
        sys.exit(str(error))


def _run(name: str, arguments: Sequence[str]) -> None:
    os.environ |= {"NO_COLOR": "1", "WANDB_MODE": "offline", "HF_HUB_OFFLINE": "1"}
    sys.path.insert(0, str(ROOT))
    sys.argv = [str(ROOT / name), *arguments]
    if name.endswith(".py"):
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
