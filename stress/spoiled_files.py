"""Files of runs and of results that are spoiled: noticed, with one message, or harmless, but never used silently."""

import json
import random
import shutil
from pathlib import Path
from typing import Any
from uuid import uuid4

from stress.mutations import mutate
from stress.outcome import Outcome
from stress.processes import command, last_lines, perform
from stress.runs import RUNS, copied, finished, half_way, rebuilding, small_results
from stress.trials import Trial, Wrong, repeat

WHAT = "bits flipped, files cut, emptied and swapped: checkpoints, weights, records, subwords"
INPUTS = {"digits": "0 8 16 4 " * 16, "airline": "the late flight", "copy": "w4 w5 w6", "pairs": "ein Hund"}


def run(seconds: float, seed: int) -> Outcome:
    return repeat("spoiled_files", WHAT, lambda home: SpoiledFiles(home).trial, seconds, seed)


class SpoiledFiles:
    """The trials, with the runs and tables that they are compared with."""

    def __init__(self, home: Path, names: tuple[str, ...] = (*RUNS,)) -> None:
        self.home = home
        self.runs = {name: finished(home, name) for name in names}
        self.half = {name: half_way(home, run, random.Random(0)) for name, run in self.runs.items()}
        for name in names:
            (home / name).write_text(f"{INPUTS[name]}\n")
        self.predicted = {name: self._predict(name, run.outputs)[1] for name, run in self.runs.items()}

    def trial(self, draw: random.Random) -> None:
        kinds: dict[Trial, int] = {self.go_on: 4, self.look_at: 4, self.predict: 4, self.tables: 2}
        kinds[self.subwords] = int("pairs" in self.runs)  # the only run that has them
        (kind,) = draw.choices([*kinds], [*kinds.values()])
        kind(draw)

    def go_on(self, draw: random.Random) -> None:
        """A file of a killed run is spoiled, then the run goes on."""
        name = draw.choice([*self.runs])
        outputs = copied(self.half[name], self.home)
        spoilt = self._spoil(draw, outputs, self.runs[name].outputs)
        status, printed = perform(outputs.parent, command("run.py", *self.runs[name].at(outputs)))
        if not status:
            self.runs[name].check(outputs)
        elif "Traceback" in printed or str(outputs) not in printed:
            raise RuntimeError(f"{spoilt}: status {status}, {last_lines(printed)!r}")
        shutil.rmtree(outputs.parent)

    def look_at(self, draw: random.Random) -> None:
        """A file of a finished run is spoiled, then the same command looks at it, and its record is collected."""
        name = draw.choice([*self.runs])
        run = self.runs[name]
        outputs = copied(run.outputs, self.home)
        spoilt = self._spoil(draw, outputs, self.half[name])
        for function in (
            command("run.py", *run.at(outputs)),
            command("reporting", "collect", run.experiment, f"--outputs={outputs}", f"--results={outputs.parent}"),
        ):
            status, printed = perform(outputs.parent, function)
            if status:
                _check_message(spoilt, status, printed)
            elif _reported(outputs) != _reported(run.outputs):
                raise Wrong(f"{spoilt}: the record is taken as it is")
        shutil.rmtree(outputs.parent)

    def predict(self, draw: random.Random) -> None:
        """A file of a finished run is spoiled, then it predicts."""
        name = draw.choice([*self.runs])
        outputs = copied(self.runs[name].outputs, self.home)
        spoilt = self._spoil(draw, outputs, self.half[name])
        status, printed = self._predict(name, outputs)
        if status:
            _check_message(spoilt, status, printed)
        elif printed != self.predicted[name]:
            raise Wrong(f"{spoilt}: predicts {last_lines(printed)!r}, not {last_lines(self.predicted[name])!r}")
        shutil.rmtree(outputs.parent)

    def subwords(self, draw: random.Random) -> None:
        """The learned subwords that runs share are spoiled, then a run uses them."""
        run, outputs = self.runs["pairs"], self.home / uuid4().hex / "outputs"
        shutil.copytree(run.outputs.parent / "data" / "subwords", outputs.parent / "data" / "subwords")
        (model,) = (outputs.parent / "data" / "subwords").iterdir()
        spoilt = mutate(draw, model, b"swapped")
        status, printed = perform(outputs.parent, command("run.py", *run.at(outputs)))
        if not status:
            run.check(outputs)
        else:
            _check_message(spoilt, status, printed)
        shutil.rmtree(outputs.parent)

    def tables(self, draw: random.Random) -> None:
        """Kept records or the declaration are spoiled, then tables are rebuilt."""
        whole = small_results(self.home / "results", "tables")
        results = copied(whole, self.home)
        shutil.rmtree(results / "tables")
        records = [*(results / "records").iterdir()]
        file = draw.choice([*records, *records, results / "tables.yaml"])
        before = file.read_bytes().splitlines()
        spoilt = mutate(draw, file, draw.choice(records).read_bytes())
        status, printed = perform(results.parent, rebuilding(results, "tables"))
        if status:
            _check_message(spoilt, status, printed)
        elif file in records and not {*file.read_bytes().splitlines()} <= {*before, b""}:  # else fewer runs, all whole
            for table in (results / "tables").iterdir():
                if table.read_bytes() != (whole / "tables" / table.name).read_bytes():
                    raise Wrong(f"{spoilt}: {table.name} is another one")
        shutil.rmtree(results.parent)

    def _spoil(self, draw: random.Random, outputs: Path, other: Path) -> str:
        files = sorted(path for path in outputs.rglob("*") if path.is_file())
        others = sorted(path for path in other.rglob("*") if path.is_file())
        return mutate(draw, draw.choice(files), draw.choice(others).read_bytes())

    def _predict(self, name: str, outputs: Path) -> tuple[int, str]:
        (folder,) = outputs.glob("*/*/seed-*")
        return perform(outputs.parent, command("predict.py", f"run={folder}", f"input={self.home / name}"))


def _reported(outputs: Path) -> list[Any]:
    """What reports read of the only record."""
    (file,) = outputs.rglob("record.json")
    record = json.loads(file.read_text("utf-8-sig"))
    return [record.get(key) for key in ("experiment", "seed", "config", "data", "curves", "metrics", "epoch")]


def _check_message(spoilt: str, status: int, printed: str) -> None:
    """Raise unless what was printed is short and names the spoiled file."""
    if "Traceback" in printed or len(printed.splitlines()) > 15 or Path(spoilt.split(":")[0]).stem not in printed:
        raise RuntimeError(f"{spoilt}: status {status}, {last_lines(printed)!r}")
