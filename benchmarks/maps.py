"""Time of every map and loss, forward and backward, beside softmax and cross-entropy: one CSV, tables and figures.

python -m benchmarks.maps
"""

import argparse
import csv
import io
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from timeit import timeit
from typing import Any

import numpy as np
import torch
import yaml
from rich.console import Console
from torch.utils.benchmark.utils.common import set_torch_threads

from benchmarks.contenders import BASELINES, Contender, contenders, inputs, step
from benchmarks.linear_layer import measure_linear
from benchmarks.maps_report import report
from benchmarks.progress import ProgressOrLines
from experiments.files import write_atomically
from experiments.identity import code_of
from experiments.machine import environment, keep_freed_memory
from reporting.declaration import Bootstrap, load_declaration
from reporting.statistics import bootstrap_interval

SETTINGS = Path(__file__).with_suffix(".yaml")


@dataclass(frozen=True)
class Case:
    """One size of logits, as in maps.yaml; its `part` is a cell of the tables, or the name of the curve it is on."""

    rows: int
    classes: int
    regime: str
    dtype: str = "float32"
    threads: Sequence[int] = (1,)
    goals: Mapping[str, float] = field(default_factory=dict)
    peers: bool = True
    part: str = "cell"

    def goal(self, contender: Contender) -> float | None:
        """The highest time on one thread, relative to the baseline's."""
        return self.goals.get(contender.orders, self.goals.get(contender.kind)) if contender.orders else None

    def rounds(self, contender: Contender, settings: Mapping[str, Any]) -> int:
        """The number of rounds that a contender takes part in."""
        rounds: int = settings["rounds" if self.part == "cell" else "curve_rounds"]
        return min(rounds, settings["peer_rounds"]) if contender.source == "entmax" else rounds


def cases(settings: dict[str, Any]) -> list[Case]:
    """The cells of the tables, then the points of the figures."""
    return [Case(**cell) for cell in settings["cells"]] + [
        Case(rows, classes, regime, part=part)
        for part, curve in settings["curves"].items()
        for regime in settings["regimes"]
        for rows in curve["rows"]
        for classes in curve["classes"]
    ]


def measure(case: Case, settings: dict[str, Any], bootstrap: Bootstrap) -> Iterator[dict[str, Any]]:
    """A row for each contender: the medians over rounds of its time and of its ratio to the baseline's, and spreads."""
    scale, dtype = settings["regimes"][case.regime], getattr(torch, case.dtype)
    tensors = inputs(case.rows, case.classes, scale, dtype, settings["seed"])
    peers = case.peers and case.rows * case.classes <= settings["peers_up_to"]
    for kind, baseline in BASELINES.items():
        entrants = [one for one in contenders() if one.kind == kind and (peers or one.source != "entmax")]
        steps = {one.name: step(one, *tensors) for one in entrants}
        rounds = {one.name: case.rounds(one, settings) for one in entrants}
        times = time_in_turn(steps, case.threads, rounds, settings)
        for threads in case.threads:
            for one in entrants:
                row = summary(case, one, threads, times[one.name, threads], times[baseline, threads])
                if threads > 1:
                    gains, baselines = (ratios(times[name, 1], times[name, threads]) for name in (one.name, baseline))
                    row |= gain(gains, baselines, bootstrap)
                yield row


def time_in_turn(
    steps: Mapping[str, Callable[[], None]], threads: Sequence[int], rounds: Mapping[str, int], settings: dict[str, Any]
) -> dict[tuple[str, int], list[float]]:
    """Seconds of each step on each number of threads, once a round; a slow step has the fastest of three calls."""
    keys = [(name, number) for name in steps for number in threads]

    def seconds(key: tuple[str, int], calls: int) -> float:
        name, number = key
        with set_torch_threads(number):
            return timeit(steps[name], number=calls) / calls  # torch's Timer would make two more calls each time

    guess = {key: min(seconds(key, 1) for _ in range(3)) for key in keys}  # the first call allocates
    fast = [key for key in keys if guess[key] < settings["slow_seconds"]]
    times = {key: [] if key in fast else [guess[key]] for key in keys}
    for turn in range(max(rounds.values())):
        for key in fast:
            if turn < rounds[key[0]]:
                seconds(key, 1)  # the caches hold another step's memory
                times[key].append(seconds(key, max(1, round(settings["block_seconds"] / guess[key]))))
    return times


def summary(
    case: Case, contender: Contender, threads: int, times: list[float], baseline: list[float]
) -> dict[str, Any]:
    return {
        "part": case.part,
        "kind": contender.kind,
        "contender": contender.name,
        "source": contender.source,
        "rows": case.rows,
        "classes": case.classes,
        "regime": case.regime,
        "dtype": case.dtype,
        "threads": threads,
        "goal": case.goal(contender) if threads == 1 else None,
        **{f"{name}_microseconds": 1e6 * value for name, value in _spread(times).items()},
        **{f"{name}_ratio": value for name, value in _spread(ratios(times, baseline)).items()},
    }


def gain(own: list[float], baseline: list[float], bootstrap: Bootstrap) -> dict[str, Any]:
    """The gain of more threads over one, and the interval of the median of this gain over the baseline's."""
    low, high = bootstrap_interval(ratios(own, baseline), np.median, bootstrap)
    return {
        **{f"{name}_gain": value for name, value in _spread(own).items()},
        "relative_gain_low": low,
        "relative_gain_high": high,
    }


def ratios(times: list[float], others: list[float]) -> list[float]:
    """Ratios of two contenders' times, round by round, as far as both go."""
    return [own / other for own, other in zip(times, others, strict=False)]


def _spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}


def provenance() -> dict[str, Any]:
    """The columns of the CSV that say where a row comes from."""
    found, source = environment(torch.device("cpu")), code_of({})
    return {
        "backend": found["backend"]["code"],
        "vectors": found["backend"]["vectors"],
        "processor": found["hardware"]["processor"],
        "cores": found["hardware"]["cores"],
        "accelerator": found["hardware"]["accelerator"],
        "python": found["python"],
        "torch": found["packages"]["torch"],
        "entmax": found["packages"]["entmax"],
        "commit": source["commit"],
        "dirty": source["dirty"],
    }


def write_csv(rows: list[dict[str, Any]], path: Path) -> None:
    """Write all rows under one header."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in row.items()} for row in rows
    )
    write_atomically(path, text.getvalue())


def main() -> None:
    """Command line: measure, write the CSV, and make its tables and figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.maps", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and peers: half a minute")
    parser.add_argument("--folder", type=Path, default=Path("results/benchmarks"), help="for what is written")
    options = parser.parse_args()
    settings = yaml.safe_load(SETTINGS.read_text(encoding="utf-8"))
    settings |= settings["quick"] if options.quick else {}
    bootstrap = load_declaration(Path("results")).bootstrap
    keep_freed_memory()  # as a training run does; the system's zeroing of new pages would be most of a large case
    source, rows = provenance(), []
    every = cases(settings)
    with ProgressOrLines(Console(stderr=True)) as progress:
        bar = progress.add_task("maps and losses", total=len(every) + (not options.quick))
        for case in every:
            rows += [{**row, **source} for row in measure(case, settings, bootstrap)]
            progress.advance(bar)
        if not options.quick:
            progress.update(bar, description="output layers")
            rows += [{**row, **source} for row in measure_linear(settings)]
            progress.advance(bar)
    path = options.folder / "maps.csv"
    write_csv(rows, path)
    report(path, settings)


if __name__ == "__main__":
    main()
