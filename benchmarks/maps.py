"""Time of every map and loss, forward and backward, beside softmax and cross-entropy: one CSV, tables and figures.

python -m benchmarks.maps
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from tqdm import tqdm

from benchmarks.contenders import BASELINES, Contender, cpu_contenders, inputs
from benchmarks.harness import Row, command_line, ratios, spread, step_times, time_columns, training_step
from benchmarks.linear_layer import measure_linear
from benchmarks.maps_figures import write_figures
from benchmarks.maps_report import page
from benchmarks.publication import publish
from benchmarks.verdicts import median_interval
from experiments.machine import keep_freed_memory
from reporting.records.declaration import load_declaration


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


def cases(settings: Mapping[str, Any]) -> list[Case]:
    """The cells of the tables, then the points of the figures."""
    return [Case(**cell) for cell in settings["cells"]] + [
        Case(rows, classes, regime, part=part)
        for part, curve in settings["curves"].items()
        for regime in settings["regimes"]
        for rows in curve["rows"]
        for classes in curve["classes"]
    ]


def measure(case: Case, settings: Mapping[str, Any], confidence: float) -> Iterator[Row]:
    """A row for each contender: the medians over rounds of its time and of its ratio to the baseline's, and spreads."""
    scale, dtype = settings["regimes"][case.regime], getattr(torch, case.dtype)
    peers = case.peers and case.rows * case.classes <= settings["peers_up_to"]
    for kind, (tensors, grad) in inputs(case.rows, case.classes, scale, dtype, settings["seed"]).items():
        entrants = [one for one in cpu_contenders(kind) if peers or one.source != "entmax"]
        steps = {one.name: training_step(one.load(), tensors, one.parameters, grad) for one in entrants}
        rounds = {one.name: case.rounds(one, settings) for one in entrants}
        times = step_times(steps, rounds, settings, case.threads)
        baseline = BASELINES[kind]
        for threads in case.threads:
            for one in entrants:
                row = {"part": case.part, "kind": kind, "contender": one.name, "source": one.source}
                row |= {name: getattr(case, name) for name in ("rows", "classes", "regime", "dtype")}
                row |= {"threads": threads, "goal": case.goal(one) if threads == 1 else None}
                row |= time_columns(times[one.name, threads], times[baseline, threads])
                if threads > 1:
                    gains, baselines = (ratios(times[name, 1], times[name, threads]) for name in (one.name, baseline))
                    row |= gain(gains, baselines, confidence)
                yield row


def gain(own: list[float], baseline: list[float], confidence: float) -> Row:
    """The gain of more threads over one, and the interval of the median of this gain over the baseline's."""
    low, high = median_interval(ratios(own, baseline), confidence)
    return {**spread(own, "gain"), "relative_gain_low": low, "relative_gain_high": high}


def measure_all(settings: Mapping[str, Any], confidence: float) -> Iterator[Row]:
    for case in tqdm(cases(settings), "maps and losses"):
        yield from measure(case, settings, confidence)
    if settings["linear"]:
        yield from measure_linear(settings)


def main() -> None:
    """Command line: measure, write the CSV, and make its tables and figures."""
    options = command_line("maps", __doc__).parse_args()
    settings, confidence = options.settings, load_declaration().confidence
    keep_freed_memory()  # as a training run does; the system's zeroing of new pages would be most of a large case
    path = options.folder / "maps.csv"
    publish("maps", measure_all(settings, confidence), path, lambda data: page(data, settings))
    write_figures(path, settings["curves"])


if __name__ == "__main__":
    main()
