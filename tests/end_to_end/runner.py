"""Runs as a person starts them, as a process of their own; in a process that is ready; and in this process."""

import contextlib
import io
import json
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

from lightning.fabric.plugins.environments.lightning import find_free_network_port
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from experiments.callbacks.curves import EXAMPLES_PER_SECOND, TRAINING_SECONDS
from experiments.identity import ROOT
from experiments.modules.translator import DECODING_SECONDS

QUICK = ("experiment=digits", "activation=sharmix_learned", "trainer.max_epochs=3", "model.hidden_units=16")
VARIABLES = {"NO_COLOR": "1", "WANDB_SILENT": "true"}
TIMING = (EXAMPLES_PER_SECOND, TRAINING_SECONDS, DECODING_SECONDS)  # the columns that a repeated run does not repeat
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["experiments.run"])


def run(outputs: Path, *overrides: str) -> tuple[int, str]:
    """The exit status of `python run.py` from the folder above `outputs`, and what it has printed."""
    command = [sys.executable, str(ROOT / "run.py"), *overrides, f"paths.outputs={outputs}"]
    environment = os.environ | VARIABLES
    environment.pop("WANDB_API_KEY", None)
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, cwd=outputs.parent
    )
    return done.returncode, done.stdout


class Started:
    """run.py in a process of its own, which signals can end. It has imported all before, which spares seconds.

    Args:
        outputs: of the run, which starts in the folder above.
        *overrides: the command line.
        **variables: of its environment.
    """

    def __init__(self, outputs: Path, *overrides: str, **variables: str) -> None:
        self.file = outputs.parent / f"printed_{uuid4().hex}"
        self.file.touch()
        arguments = [str(ROOT / "run.py"), *overrides, f"paths.outputs={outputs}"]
        self.process = _PROCESSES.Process(target=_run_here, args=(arguments, self.file, VARIABLES | variables))
        with contextlib.chdir(ROOT):  # from which the server of processes imports
            self.process.start()

    def wait_for(self, words: str) -> None:
        """Until the run has printed these words."""
        while words not in self.file.read_text():
            assert self.process.is_alive(), self.file.read_text()
            time.sleep(0.05)

    def send(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def end(self) -> tuple[int, str]:
        """The exit status, negative where a signal has ended the run, and what it has printed."""
        self.process.join(timeout=170)
        if self.process.exitcode is None:
            self.process.kill()
            raise TimeoutError(self.file.read_text())
        return self.process.exitcode, self.file.read_text()


def _run_here(arguments: list[str], printed: Path, variables: dict[str, str]) -> None:
    """As `python run.py` does, in a process that is there already."""
    multiprocessing.set_start_method(None, force=True)  # the usual one, for the processes that read data
    with printed.open("a", buffering=1) as file, contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
        os.environ.update(variables)
        rank_zero_only.rank = int(variables.get("RANK", 0))  # which Lightning has read when it was imported
        os.chdir(printed.parent)
        sys.argv = arguments
        sys.path.insert(0, str(ROOT))
        runpy.run_path(arguments[0], run_name="__main__")


def torchrun(processes: int) -> list[dict[str, str]]:
    """The variables that torchrun gives to each process of a run on this machine."""
    common = {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)}
    common |= {"GROUP_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(find_free_network_port())}
    return [common | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(processes)]


def command_line(outputs: Path, *overrides: str) -> tuple[int, str]:
    """As `run`, but run.py runs in this process; overrides may give other outputs."""
    printed = io.StringIO()
    own = any(override.lstrip("~").startswith("paths.outputs") for override in overrides)
    arguments = [str(ROOT / "run.py"), *overrides, *([] if own else [f"paths.outputs={outputs}"])]
    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.object(sys, "argv", arguments))
        stack.enter_context(patch.object(sys, "path", list(sys.path)))
        stack.enter_context(patch.dict(os.environ, VARIABLES))
        os.environ.pop("WANDB_API_KEY", None)
        stack.enter_context(contextlib.chdir(outputs.parent))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # a test of warnings starts a process
        stack.enter_context(contextlib.redirect_stdout(printed))
        stack.enter_context(contextlib.redirect_stderr(printed))
        try:
            runpy.run_path(arguments[0], run_name="__main__")
            status = 0
        except SystemExit as stopped:
            if isinstance(stopped.code, str):  # Python would print it
                printed.write(f"{stopped.code}\n")
            status = stopped.code if isinstance(stopped.code, int) else int(bool(stopped.code))
    return status, printed.getvalue()


def records(outputs: Path) -> list[Path]:
    return sorted(outputs.rglob("record.json"))


def only_record(outputs: Path) -> dict[str, Any]:
    (file,) = records(outputs)
    record: dict[str, Any] = json.loads(file.read_text())
    return record


def untimed(curves: list[dict[str, float]]) -> list[dict[str, float]]:
    """The rows without what a repeated run does not repeat."""
    return [{name: value for name, value in row.items() if name not in TIMING} for row in curves]
