"""Runs as a person starts them, as a process of their own; in a process that is ready; and in this process."""

import contextlib
import io
import json
import os
import runpy
import signal
import subprocess
import sys
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

from lightning.fabric.plugins.environments.lightning import find_free_network_port
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from experiments.callbacks.curves import EXAMPLES_PER_SECOND, TRAINING_SECONDS
from experiments.identity import ROOT
from experiments.modules.translator import DECODING_SECONDS
from tests.stress.kills import Process

QUICK = ("experiment=digits", "activation=sharmix_learned", "trainer.max_epochs=3", "model.hidden_units=16")
VARIABLES = {"NO_COLOR": "1", "WANDB_SILENT": "true"}
TIMING = (EXAMPLES_PER_SECOND, TRAINING_SECONDS, DECODING_SECONDS)  # the columns that a repeated run does not repeat


def start(outputs: Path, *overrides: str) -> tuple[subprocess.Popen[bytes], Path]:
    """run.py as a shell starts it from the folder above `outputs`, in a process group of its own; what it prints."""
    printed = outputs.parent / f"printed_{uuid4().hex}"
    command = [sys.executable, str(ROOT / "run.py"), *overrides, f"paths.outputs={outputs}"]
    environment = {name: value for name, value in (os.environ | VARIABLES).items() if name != "WANDB_API_KEY"}
    with printed.open("w") as file:
        process = subprocess.Popen(
            command,
            stdout=file,
            stderr=file,
            env=environment,
            cwd=outputs.parent,
            start_new_session=True,
            preexec_fn=allow_interrupts,
        )
    return process, printed


def run(outputs: Path, *overrides: str) -> tuple[int, str]:
    """The exit status of `python run.py`, and what it has printed."""
    process, printed = start(outputs, *overrides)
    return process.wait(), printed.read_text()


class Started(Process):
    """run.py in a process of its own, which signals can end. It has imported all before, which spares seconds."""

    def __init__(self, outputs: Path, *overrides: str, **variables: str) -> None:
        prepare = partial(prepare_process, VARIABLES | variables)
        with contextlib.chdir(ROOT):  # from which the server of processes imports
            super().__init__(outputs.parent, (*overrides, f"paths.outputs={outputs}"), prepare)

    def wait_for(self, words: str) -> None:
        """Until the run has printed these words."""
        while not self.printed.exists() or words not in self.printed.read_text():
            assert self.process.is_alive(), self.end()
            time.sleep(0.05)


def prepare_process(variables: dict[str, str]) -> None:
    os.environ.update(variables)
    allow_interrupts()
    rank_zero_only.rank = int(variables.get("RANK", 0))  # which Lightning has read when it was imported


def allow_interrupts() -> None:
    """React to Ctrl-C, also where the tests are a shell's background command, which the shell lets ignore it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


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


def succeed(outputs: Path, *overrides: str) -> str:
    """What run.py prints, run in this process; it must succeed."""
    status, printed = command_line(outputs, *overrides)
    assert status == 0, printed
    return printed


def records(outputs: Path) -> list[Path]:
    return sorted(outputs.rglob("record.json"))


def only_record(outputs: Path) -> dict[str, Any]:
    (file,) = records(outputs)
    record: dict[str, Any] = json.loads(file.read_text())
    return record


def untimed(curves: list[dict[str, float]]) -> list[dict[str, float]]:
    """The rows without what a repeated run does not repeat."""
    return [{name: value for name, value in row.items() if name not in TIMING} for row in curves]
