"""Time of every map and loss, forward and backward, beside softmax and cross-entropy: one CSV, a table and a figure.

python -m benchmarks.maps
"""

import argparse
import csv
import io
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from rich.console import Console
from rich.progress import Progress
from torch.utils.benchmark import Timer

from benchmarks.contenders import BASELINES, Contender, contenders, inputs, step
from benchmarks.linear_layer import measure_linear
from benchmarks.maps_report import report
from experiments.files import write_atomically
from experiments.identity import code_of
from experiments.machine import environment, keep_freed_memory

SETTINGS = Path(__file__).with_suffix(".yaml")


@dataclass(frozen=True)
class Case:
    """One size of logits, as in maps.yaml."""

    rows: int
    classes: int
    regime: str
    dtype: str = "float32"
    threads: tuple[int, ...] = (1,)
    goal: float | None = None
    peers: bool = True
    curve: bool = False


def cases(settings: dict[str, Any], device: str, quick: bool) -> list[Case]:
    """The cells of the table, then the points of the figure."""
    if device == "cuda":
        return [_case(cell) for cell in settings["cuda_cells"]]
    curve = settings["curve"]
    points = settings["quick"]["curve_classes"] if quick else curve["classes"]
    cells = [_case(cell) for cell in settings["cells"]]
    return cells + [
        Case(curve["rows"], classes, regime, curve=True) for regime in settings["regimes"] for classes in points
    ]


def _case(cell: dict[str, Any]) -> Case:
    return Case(**{**cell, "threads": tuple(cell.get("threads", (1,)))})


def measure(case: Case, settings: dict[str, Any], device: str, quick: bool) -> Iterator[dict[str, Any]]:
    """A row for each contender: the medians over rounds of its time and of its ratio to the baseline's, and spreads."""
    pace = {**settings, **settings["quick"]} if quick else settings
    scale, dtype = settings["regimes"][case.regime], getattr(torch, case.dtype)
    tensors = inputs(case.rows, case.classes, scale, dtype, device, settings["seed"])
    peers = case.peers and not (quick and case.rows * case.classes > pace["peers_up_to"])
    for kind, baseline in BASELINES.items():
        entrants = [one for one in contenders() if one.kind == kind and (peers or one.source != "entmax")]
        steps = {one.name: step(one, *tensors) for one in entrants}
        timers = {
            (name, threads): Timer("step()", globals={"step": run}, num_threads=threads)
            for name, run in steps.items()
            for threads in case.threads
        }
        times = time_in_turn(timers, pace)
        for threads in case.threads:
            for one in entrants:
                yield summary(case, one, threads, times[one.name, threads], times[baseline, threads])


def time_in_turn(timers: dict[Any, Timer], pace: dict[str, Any]) -> dict[Any, list[float]]:
    """Seconds of what each timer runs, one measurement a round; slow ones are measured once."""
    guess = {key: timer.timeit(1).mean for key, timer in timers.items()}
    fast = [key for key in timers if guess[key] < pace["slow_seconds"]]
    for key in fast:
        guess[key] = timers[key].timeit(1).mean  # the first run allocated
    times: dict[Any, list[float]] = {key: [] if key in fast else [guess[key]] for key in timers}
    for _ in range(pace["rounds"]):
        for key in fast:
            times[key].append(timers[key].timeit(max(1, round(pace["block_seconds"] / guess[key]))).mean)
    return times


def summary(
    case: Case, contender: Contender, threads: int, times: list[float], baseline: list[float]
) -> dict[str, Any]:
    ratios = [own / other for own, other in zip(times, baseline, strict=False)]
    return {
        "part": "curve" if case.curve else "cell",
        "kind": contender.kind,
        "contender": contender.name,
        "source": contender.source,
        "rows": case.rows,
        "classes": case.classes,
        "regime": case.regime,
        "dtype": case.dtype,
        "threads": threads,
        "goal": case.goal,
        **{f"{name}_microseconds": 1e6 * value for name, value in _spread(times).items()},
        **{f"{name}_ratio": value for name, value in _spread(ratios).items()},
    }


def _spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}


def provenance(device: str) -> dict[str, Any]:
    """What every row of the CSV says of where it comes from."""
    found, source = environment(torch.device(device)), code_of({})
    return {
        "device": device,
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
    """All rows under one header."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in row.items()} for row in rows
    )
    write_atomically(path, text.getvalue())


def main() -> None:
    """Command line: measure, write the CSV, and make its table and figure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.maps", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and peers: two minutes")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where the logits are")
    parser.add_argument("--folder", type=Path, default=Path("results/benchmarks"), help="for what is written")
    options = parser.parse_args()
    settings = yaml.safe_load(SETTINGS.read_text(encoding="utf-8"))
    keep_freed_memory()  # as a training run does; the system's zeroing of new pages would be most of a large case
    source, rows = provenance(options.device), []
    with Progress(console=Console(stderr=True)) as progress:
        for case in progress.track(cases(settings, options.device, options.quick), description="maps and losses"):
            rows += [{**row, **source} for row in measure(case, settings, options.device, options.quick)]
    if options.device == "cpu" and not options.quick:
        rows += [{**row, **source} for row in measure_linear(settings)]
    name = "maps" if options.device == "cpu" else "maps_cuda"
    path = options.folder / f"{name}.csv"
    write_csv(rows, path)
    report(path)


if __name__ == "__main__":
    main()
