"""Small runs for the trials, and what is compared of two runs that must be the same."""

import csv
import hashlib
import json
import random
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any
from uuid import uuid4

import torch

from experiments.callbacks.curves import EXAMPLES_PER_SECOND, TRAINING_SECONDS
from experiments.identity import ROOT
from experiments.modules.translator import DECODING_SECONDS
from experiments.record import RecordError, load_record
from stress.endings import OPERATION, AtOperation
from stress.processes import command, last_lines, perform
from stress.trials import Lost, Wrong
from tests.experiments.data.generated import ENGLISH, GERMAN, lines, tweets, write_pairs, write_tweets

FILES = {"record.json", "metrics.csv", "weights.ckpt"}  # of a finished run
TIMES = {EXAMPLES_PER_SECOND, TRAINING_SECONDS, DECODING_SECONDS}
KEPT = ("cifar100_augmented", "copy", "multi30k_early")  # the experiments whose tables and figures are rebuilt
_building = Lock()  # of the threads that try
_COMMON = ("progress=lines", "checkpoint_seconds=0", "trainer.max_epochs=3", "activation=sharmix_learned")
_FEW = "data.expected_examples=null"  # not those of the published data set
RUNS = {
    "digits": ("experiment=digits", "model.hidden_units=8"),
    "airline": ("experiment=airline", "model.embedding_dimension=8", "data.batch_size=8", _FEW),
    "copy": (
        *("experiment=copy", "data.words=6", "data.shortest=2", "data.longest=4", "data.train_size=200"),
        *("data.evaluation_size=10", "model.dimension=16", "model.feedforward=16", "model.heads=2"),
        *("model.encoder_layers=1", "model.decoder_layers=1", "activation=softmax"),
    ),
    "pairs": (
        *("experiment=multi30k", "data.name=pairs", "data.test=test", "data.vocabulary_size=60", "data.batch_size=60"),
        *("model.dimension=16", "model.feedforward=16", "model.heads=2", "model.encoder_layers=1"),
        *("model.decoder_layers=1", "activation=softmax", _FEW),
    ),
}


@dataclass(frozen=True)
class Run:
    """A run that was never killed, beside which others are judged.

    Attributes:
        arguments: of run.py, without the folder of the results.
        outputs: its own results.
        printed: what it has printed, with a line for each file operation.
        end: what must be the same wherever it is run again.
    """

    arguments: tuple[str, ...]
    outputs: Path
    printed: str
    end: Mapping[str, Any]

    @property
    def experiment(self) -> str:
        """The name of the experiment."""
        return next(one.partition("=")[2] for one in self.arguments if one.startswith("experiment="))

    def at(self, outputs: Path, *more: str) -> tuple[str, ...]:
        """The arguments of the run with its results elsewhere."""
        return (*self.arguments, *more, f"paths.outputs={outputs}")

    def check(self, outputs: Path) -> None:
        """Raise unless the finished run in `outputs` is this one, to the bit, and nothing is beside it."""
        end = result(outputs)
        for what, expected in self.end.items():
            if end[what] != expected:
                kind = Lost if what in ("epochs", "epochs in the CSV file", "files") else Wrong
                raise kind(f"{what}: {str(end[what])[:100]} where an undisturbed run has {str(expected)[:100]}")


@cache
def finished(home: Path, name: str) -> Run:
    """The run of a name, trained to its end."""
    write_tweets(home / "data", tweets())
    for split in ("train", "val", "test"):
        write_pairs(home / "data", split, lines(GERMAN), lines(ENGLISH))
    arguments = (*_COMMON, *RUNS[name], f"paths.data={home / 'data'}")
    outputs = home / f"finished-{name}"
    status, printed = perform(
        home, command("run.py", *arguments, f"paths.outputs={outputs}"), prepare=AtOperation(home, None)
    )
    assert status == 0, printed
    return Run(arguments, outputs, printed, result(outputs))


def half_way(home: Path, run: Run, draw: random.Random) -> Path:
    """The results of a run that was killed after its first checkpoint."""
    while True:
        outputs = home / uuid4().hex / "outputs"
        number = draw.randint(1, run.printed.count(OPERATION))
        perform(outputs.parent, command("run.py", *run.at(outputs)), prepare=AtOperation(outputs, number))
        if [*outputs.rglob("last-*.ckpt")] and not [*outputs.rglob("record.json")]:
            return outputs


def small_results(results: Path, kind: str, number: int = 199) -> Path:
    """A folder of some of the project's records, with the tables or figures of a declaration that has the number."""
    with _building:
        if not results.exists():
            _build_results(results, kind, number)
    return results


def _build_results(results: Path, kind: str, number: int) -> None:
    (results / "records").mkdir(parents=True)
    for name in KEPT:
        shutil.copy(ROOT / "results" / "records" / f"{name}.jsonl", results / "records")
    shutil.copytree(ROOT / "results" / "published", results / "published")
    text = (ROOT / "results" / "tables.yaml").read_text(encoding="utf-8")
    changed = text.replace("resamples: 9999", f"resamples: {number}")
    changed = re.sub(r'title: ("?)', rf"title: \g<1>{number} ", changed)
    (results / "tables.yaml").write_text(changed, encoding="utf-8")
    status, printed = perform(results.parent, rebuilding(results, kind))
    assert status == 0, printed


def rebuilding(results: Path, kind: str) -> Callable[[], object]:
    """Rebuild the tables or figures of a folder of results."""
    return command("reporting", kind, "--results", str(results))


def copied(folder: Path, home: Path) -> Path:
    """A copy of a folder, under a name of its own."""
    return shutil.copytree(folder, home / uuid4().hex / folder.name, dirs_exist_ok=True)


def result(outputs: Path) -> dict[str, Any]:
    """What is compared of the only finished run of a folder; raises Lost where there is none, or no whole one."""
    folder = whole_record(outputs)
    if folder is None:
        raise Lost(f"no record; there are {sorted(path.name for path in outputs.rglob('*'))}")
    record = json.loads((folder / "record.json").read_text("utf-8-sig"))
    with (folder / "metrics.csv").open(newline="", errors="replace") as file:
        rows = [*csv.DictReader(file)]
    return {
        "files": sorted(str(path.relative_to(folder)) for path in folder.rglob("*")),
        "epochs": [row["epoch"] for row in record["curves"]],
        "epochs in the CSV file": [row["epoch"] for row in rows],
        "curves": [_untimed(row) for row in record["curves"]],
        "CSV file": [_untimed(row) for row in rows],
        "metrics": {split: _untimed(values) for split, values in record["metrics"].items()},
        "weights after the last epoch": record["weights_hash"],
        "weights that are kept": _digest(folder / "weights.ckpt"),
        "data": record["data"],
    }


def whole_record(outputs: Path) -> Path | None:
    """The folder of the record, None where there is none yet; raises Lost where it is not whole, or its weights."""
    files = [*outputs.rglob("record.json")]
    if len(files) > 1:
        raise Lost(f"{len(files)} records of one run")
    for file in files:
        try:
            load_record(file)
            _digest(file.with_name("weights.ckpt"))
        except (RecordError, OSError, RuntimeError) as error:
            raise Lost(f"half a record: {error}") from error
        return file.parent
    return None


def run_again(run: Run, outputs: Path, *more: str) -> None:
    """Let the run's command go on undisturbed; raises Lost unless it uses the checkpoint, and as `check`."""
    checkpoints = [] if more else [*outputs.glob("*/*/*/last-*.ckpt")]
    status, printed = perform(outputs.parent, command("run.py", *run.at(outputs, *more)))
    if status:
        raise RuntimeError(f"status {status}: {last_lines(printed)!r}")
    if checkpoints and "goes on from epoch" not in printed and "finished before" not in printed:
        raise Lost(f"a checkpoint is not used: {last_lines(printed)!r}")
    run.check(outputs)


def _digest(weights: Path) -> str:
    state = torch.load(weights, map_location="cpu", weights_only=True)["state_dict"]
    digest = hashlib.sha256()
    for name, tensor in state.items():
        digest.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


def _untimed(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name.rpartition("/")[2] not in TIMES}
