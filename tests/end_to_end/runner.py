"""Runs as a person starts them, in a process of their own; and the same without the start of a process."""

import contextlib
import io
import json
import os
import runpy
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import patch

from experiments.callbacks.curves import EXAMPLES_PER_SECOND, TRAINING_SECONDS
from experiments.identity import ROOT
from experiments.modules.translator import DECODING_SECONDS

QUICK = ("experiment=digits", "activation=sharmix_learned", "trainer.max_epochs=3", "model.hidden_units=16")
TIMING = (EXAMPLES_PER_SECOND, TRAINING_SECONDS, DECODING_SECONDS)  # the columns that a repeated run does not repeat


def start(outputs: Path, *overrides: str, **variables: str) -> "subprocess.Popen[str]":
    """Start run.py from the folder above `outputs`."""
    command = [sys.executable, str(ROOT / "run.py"), *overrides, f"paths.outputs={outputs}"]
    environment = os.environ | {"NO_COLOR": "1", "WANDB_MODE": "offline", "WANDB_SILENT": "true"} | variables
    environment.pop("WANDB_API_KEY", None)
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, cwd=outputs.parent
    )


def run(outputs: Path, *overrides: str, **variables: str) -> tuple[int, str]:
    """The exit status of run.py and what it has printed."""
    process = start(outputs, *overrides, **variables)
    printed, _ = process.communicate(timeout=170)
    return process.returncode, printed


def command_line(outputs: Path, *overrides: str) -> tuple[int, str]:
    """As `run`, but run.py runs in this process."""
    printed = io.StringIO()
    arguments = [str(ROOT / "run.py"), *overrides, f"paths.outputs={outputs}"]
    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.object(sys, "argv", arguments))
        stack.enter_context(patch.object(sys, "path", list(sys.path)))
        stack.enter_context(patch.dict(os.environ, NO_COLOR="1", WANDB_MODE="offline", WANDB_SILENT="true"))
        stack.enter_context(contextlib.chdir(outputs.parent))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # a test of warnings starts a process
        stack.enter_context(contextlib.redirect_stdout(printed))
        stack.enter_context(contextlib.redirect_stderr(printed))
        try:
            runpy.run_path(arguments[0], run_name="__main__")
            status = 0
        except SystemExit as stopped:
            status = int(stopped.code or 0)
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
