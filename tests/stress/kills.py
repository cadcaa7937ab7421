"""Runs and sweeps that are killed at any moment.

The same command then goes on, and must end as if nothing had happened.
"""

import contextlib
import csv
import json
import multiprocessing
import os
import random
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch

from tests.stress.outcome import Lost, Outcome, Wrong

WHAT = "runs and sweeps killed at a random time or file operation"
ROOT = Path(__file__).parents[2]
PATIENCE = 120.0  # seconds after which a process counts as hanging
OPERATION = "file operation\n"  # printed for each operation where operations are counted
_OPERATIONS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.link", "os.truncate")
_TIMES = ("seconds", "per_second")  # the ends of the names of what differs from run to run
_COMMON = ("progress=lines", "checkpoint_seconds=0", "trainer.max_epochs=3")
RUNS = {
    "digits": ("experiment=digits", "activation=sharmix_learned", "model.hidden_units=8"),
    "copy": (
        *("experiment=copy", "data.words=6", "data.shortest=2", "data.longest=4", "data.train_size=200"),
        *("data.evaluation_size=10", "model.dimension=16", "model.feedforward=16", "model.heads=2"),
        *("model.encoder_layers=1", "model.decoder_layers=1", "activation=softmax"),
    ),
}
# Trials fork from a process that has imported the large packages, so that a run takes one second.
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["experiments.run", "hydra", "sklearn.datasets", "scipy.stats"])


def run(seconds: float, seed: int) -> Outcome:
    """Kill runs for so many seconds. The first trial draws from the seed, the others from seeds that it draws."""
    outcome, end, seeds = Outcome(WHAT), time.monotonic() + seconds, random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="sharmix-stress-", ignore_cleanup_errors=True) as home:
        kills = Kills(Path(home))
        while outcome.tried == 0 or time.monotonic() < end:
            outcome.tried += 1
            try:
                generator = random.Random(seed)
                kills.kill_sweep(generator) if generator.random() < 0.03 else kills.kill_run(generator)
                outcome.survived += 1
            except Exception as error:
                outcome.lost += isinstance(error, Lost)
                outcome.wrong += isinstance(error, Wrong)
                repeat = f"python -m tests.stress kills --minutes 0 --seed {seed}"
                outcome.failures.append(f"{type(error).__name__.lower()}: {error} [{repeat}]")
            seed = seeds.randrange(2**32)
    return outcome


@dataclass(frozen=True)
class UndisturbedRun:
    """A run that nothing disturbed. Killed runs of the same command must end like it.

    Attributes:
        arguments: the arguments of run.py, without the folder of the results.
        outputs: the folder of its own results.
        operations: the number of its file operations.
        result: what must be the same wherever the command runs again, see `result`.
    """

    arguments: tuple[str, ...]
    outputs: Path
    operations: int
    result: Mapping[str, Any]

    def check(self, outputs: Path) -> None:
        """Raise Wrong unless the finished run in `outputs` is equal to this one, to the bit."""
        found = result(outputs)
        for what, expected in self.result.items():
            if found[what] != expected:
                raise Wrong(f"{what}: {str(found[what])[:100]} where an undisturbed run has {str(expected)[:100]}")


class Kills:
    """The trials, with the undisturbed runs that they are compared with."""

    def __init__(self, home: Path, names: tuple[str, ...] = (*RUNS,)) -> None:
        self.home, self.runs = home, {}
        for name in names:
            arguments, outputs = (*_COMMON, *RUNS[name]), home / name
            command = (*arguments, f"paths.outputs={outputs}")
            status, printed = Process(home, command, AtOperation(outputs, None)).end()
            assert status == 0, printed
            self.runs[name] = UndisturbedRun(arguments, outputs, printed.count(OPERATION), result(outputs))

    def kill_run(self, generator: random.Random) -> None:
        """Kill a run one to three times, sometimes while it repeats a finished run by force=true."""
        run, force = self.runs[generator.choice([*self.runs])], generator.random() < 0.3
        outputs = self.home / uuid4().hex / "outputs"
        command = (*run.arguments, f"paths.outputs={outputs}", *(["force=true"] if force else []))
        if force:
            shutil.copytree(run.outputs, outputs)
        for _ in range(generator.choice((1, 1, 2, 3))):
            self._kill(generator, outputs, command, run.operations)
            if force and not [*outputs.rglob("record.json")]:
                raise Lost("force=true: the old record is gone before there is a new one")
        go_on(command, run, outputs)
        shutil.rmtree(outputs.parent)

    def kill_sweep(self, generator: random.Random) -> None:
        """Kill a sweep whose runs have processes of their own."""
        run, outputs = self.runs["digits"], self.home / uuid4().hex / "outputs"
        arguments = (*run.arguments, f"paths.outputs={outputs}", "seed=21,42,63", "hydra.launcher.n_jobs=2")
        command = [sys.executable, str(ROOT / "run.py"), "-m", "hydra/launcher=cores", *arguments]
        outputs.parent.mkdir()
        sweep = subprocess.Popen(
            command, cwd=outputs.parent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        time.sleep(generator.uniform(0, 15))
        os.killpg(sweep.pid, signal.SIGKILL)
        sweep.wait()
        subprocess.run(command, cwd=outputs.parent, capture_output=True, check=True, timeout=3 * PATIENCE)
        seeds = sorted(file.parent.name for file in outputs.rglob("record.json"))
        if seeds != ["seed-21", "seed-42", "seed-63"]:
            raise Lost(f"the sweep has records of {seeds}")
        (first,) = outputs.glob("*/*/seed-21")
        run.check(first)
        shutil.rmtree(outputs.parent)

    def _kill(self, generator: random.Random, outputs: Path, command: tuple[str, ...], operations: int) -> None:
        """Start a run and end it by a signal, at a random time or file operation."""
        number = generator.choices((signal.SIGKILL, signal.SIGTERM, signal.SIGINT), (8, 1, 1))[0]
        at_operation = generator.choice((None, AtOperation(outputs, generator.randint(1, operations), number)))
        process = Process(outputs.parent, command, at_operation)
        if at_operation is None:
            time.sleep(generator.uniform(0, 1.5))
            process.send(number)
        status, printed = process.end()
        if "Traceback" in printed:
            raise RuntimeError(f"a traceback at the end, status {status}: {printed[-300:]!r}")


def go_on(command: tuple[str, ...], run: UndisturbedRun, outputs: Path) -> None:
    """Let a command run undisturbed. It must continue from its checkpoint and end like the undisturbed run."""
    checkpoints = [file for file in outputs.glob("*/*/*/last-*.ckpt") if not file.with_name("record.json").exists()]
    status, printed = Process(outputs.parent, command).end()
    if status:
        raise RuntimeError(f"the run does not go on: status {status}, {printed[-300:]!r}")
    if checkpoints and "goes on from epoch" not in printed:
        raise Lost(f"a checkpoint is not used: {printed[-300:]!r}")
    run.check(outputs)


def result(outputs: Path) -> dict[str, Any]:
    """What is compared of the only finished run in a folder.

    Raises:
        Lost: the folder has no record or more than one, or a file of the run cannot be read.
    """
    files = [*outputs.rglob("record.json")]
    if len(files) != 1:
        raise Lost(f"{len(files)} records among {sorted(path.name for path in outputs.rglob('*'))}")
    folder = files[0].parent
    try:
        record = json.loads(files[0].read_text(encoding="utf-8"))
        weights = torch.load(folder / "weights.ckpt", map_location="cpu", weights_only=True)["state_dict"]
        with (folder / "metrics.csv").open(newline="", encoding="utf-8") as file:
            rows = [*csv.DictReader(file)]
    except (ValueError, OSError, RuntimeError) as error:
        raise Lost(f"half a run: {error}") from error
    return {
        "files": sorted(str(path.relative_to(folder)) for path in folder.rglob("*")),
        "curves": [*map(_without_times, record["curves"])],
        "CSV file": [*map(_without_times, rows)],
        "metrics": {split: _without_times(values) for split, values in record["metrics"].items()},
        "weights after the last epoch": record["weights_hash"],
        "weights that are kept": {name: tensor.numpy().tobytes() for name, tensor in weights.items()},
        "data": record["data"],
    }


def _without_times(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.endswith(_TIMES)}


class Process:
    """run.py in a process of its own.

    Args:
        folder: the folder in which it runs, and in which its output is kept until it ends.
        arguments: the arguments of run.py.
        prepare: called in the process before run.py.
    """

    def __init__(self, folder: Path, arguments: tuple[str, ...], prepare: Callable[[], None] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.printed = folder / f"printed-{uuid4().hex}"
        self.process = _PROCESSES.Process(target=_run, args=(self.printed, arguments, prepare))
        self.process.start()

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid or 0, number)

    def end(self) -> tuple[int, str]:
        """The exit status, negative where a signal ended the process, and what the process printed."""
        self.process.join(PATIENCE)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
            raise RuntimeError(f"it hangs; printed {self.printed.read_text(errors='replace')[-300:]!r}")
        text = self.printed.read_text(errors="replace") if self.printed.exists() else ""
        self.printed.unlink(missing_ok=True)
        return self.process.exitcode, text


@dataclass(frozen=True)
class AtOperation:
    """Ends the process that calls it, at one of its later operations that change files.

    Attributes:
        folder: only operations below this folder count.
        number: the number of the operation, from 1; None ends nothing and prints `OPERATION` for each operation.
        by: the signal that ends the process.
    """

    folder: Path
    number: int | None
    by: signal.Signals = signal.SIGKILL

    def __call__(self) -> None:
        counted, place = count(1), str(self.folder)

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            if event not in _OPERATIONS or (event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR)):
                return
            if any(str(os.fsdecode(one)).startswith(place) for one in arguments[:2] if isinstance(one, str | Path)):
                number = next(counted)
                if self.number is None:
                    os.write(2, OPERATION.encode())
                elif self.number == number:
                    os.kill(os.getpid(), self.by)

        sys.addaudithook(hook)


def _run(printed: Path, arguments: tuple[str, ...], prepare: Callable[[], None] | None) -> None:
    os.chdir(printed.parent)
    os.environ |= {"NO_COLOR": "1", "OMP_NUM_THREADS": "1"}
    multiprocessing.set_start_method(None, force=True)  # the usual method, for the processes that read data
    sys.stdout = sys.stderr = file = printed.open("a", buffering=1)
    for stream in (1, 2):
        os.dup2(file.fileno(), stream)
    if prepare is not None:
        prepare()
    sys.path.insert(0, str(ROOT))
    sys.argv = [str(ROOT / "run.py"), *arguments]
    runpy.run_path(sys.argv[0], run_name="__main__")
