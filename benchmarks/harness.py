"""How every benchmark reads its settings, measures time, and writes its numbers.

This module needs torch and PyYAML alone: `make gpu` also runs on a borrowed machine that has few packages.
"""

import argparse
import csv
import multiprocessing
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from timeit import timeit
from typing import Any

import torch
import yaml
from torch import Tensor

Row = dict[str, Any]
Step = Callable[[], object]


def load_settings(name: str) -> dict[str, Any]:
    """The settings of a benchmark, from NAME.yaml."""
    return yaml.safe_load(Path(__file__).with_name(f"{name}.yaml").read_text(encoding="utf-8"))


def command_line(name: str, description: str | None) -> argparse.ArgumentParser:
    """The parser of `python -m benchmarks.NAME`; among what it parses are the `settings`."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    settings = load_settings(name)
    parser.set_defaults(settings=settings)
    if "quick" in settings:
        quick, text = settings | settings["quick"], f"fewer and smaller measurements, as {name}.yaml says"
        parser.add_argument("--quick", dest="settings", action="store_const", const=quick, help=text)
    parser.add_argument("--folder", type=Path, default=Path("results/benchmarks"), help="for what is written")
    return parser


def in_turn(
    measure: Callable[[Any], float], rounds: Mapping[Any, int], order: random.Random | None = None
) -> dict[Any, list[float]]:
    """One measurement of each key a round, so that all keys share the machine's slow moments.

    Args:
        measure: returns seconds.
        rounds: the number of rounds in which each key takes part.
        order: draws a new order of the keys for each round; None keeps the order of `rounds`.
    """
    times: dict[Any, list[float]] = {key: [] for key in rounds}
    for turn in range(max(rounds.values(), default=0)):
        keys = [key for key in rounds if turn < rounds[key]]
        for key in order.sample(keys, len(keys)) if order else keys:
            times[key].append(measure(key))
    return times


def step_times(
    steps: Mapping[str, Step],
    rounds: Mapping[str, int],
    settings: Mapping[str, Any],
    threads: Sequence[int] = (1,),
    wait: Step = lambda: None,
) -> dict[tuple[str, int], list[float]]:
    """Seconds of a call of each step on each number of threads, in turn.

    Args:
        steps: the steps by name.
        rounds: the number of rounds in which each step takes part.
        settings: `block_seconds`, about the time of one measurement, and `slow_seconds`: a step that takes so long is
            called three times instead, and the fastest call is kept.
        threads: numbers of threads.
        wait: waits for a device to finish; called before and after each measurement.
    """

    def seconds(key: tuple[str, int], calls: int) -> float:
        step, number = steps[key[0]], key[1]

        def block() -> None:
            for _ in range(calls):
                step()
            wait()

        wait()
        before = torch.get_num_threads()
        torch.set_num_threads(number)
        try:
            return timeit(block, number=1) / calls
        finally:
            torch.set_num_threads(before)

    keys = [(name, number) for name in steps for number in threads]
    guess = {key: min(seconds(key, 1) for _ in range(3)) for key in keys}  # the first call allocates
    fast = {key: rounds[key[0]] for key in keys if guess[key] < settings["slow_seconds"]}

    def measure(key: tuple[str, int]) -> float:
        seconds(key, 1)  # the caches hold another step's memory
        return seconds(key, max(1, round(settings["block_seconds"] / guess[key])))

    times = in_turn(measure, fast)
    return {key: times.get(key, [guess[key]]) for key in keys}


def training_step(
    run: Callable[..., Tensor], inputs: Sequence[Tensor], parameters: Sequence[Tensor], grad: Tensor | None = None
) -> Step:
    """Forward and backward, as in a training step: gradients are new each time.

    Args:
        run: a map, a loss or a layer.
        inputs: its arguments.
        parameters: learned tensors that get gradients too.
        grad: the gradient of a map's output; None for losses and layers.
    """
    leaves = [tensor for tensor in (*inputs, *parameters) if tensor.requires_grad]

    def step() -> None:
        for leaf in leaves:
            leaf.grad = None
        run(*inputs).backward(grad)

    return step


def in_fresh_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function returns in a process of its own, whose memory holds nothing of earlier calls."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def ratios(times: Sequence[float], others: Sequence[float]) -> list[float]:
    """Ratios of two contenders' times, round by round, as far as both go."""
    return [own / other for own, other in zip(times, others, strict=False)]


def spread(values: Sequence[float], name: str, unit: float = 1) -> dict[str, float]:
    """The columns of the median, the lowest and the highest of some values, in a unit."""
    found = {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}
    return {f"{part}_{name}": unit * value for part, value in found.items()}


def time_columns(times: Sequence[float], baseline: Sequence[float]) -> dict[str, float]:
    """The columns of a contender's seconds, and of their ratios to the baseline's: by round, or one to the median."""
    if len(times) == 1:
        baseline = [statistics.median(baseline)]
    return spread(times, "microseconds", 1e6) | spread(ratios(times, baseline), "ratio")


def with_range(median: float, lowest: float, highest: float, decimals: int = 2) -> str:
    """A median with its range, such as "1.38 (1.37–1.39)"."""
    return f"{median:.{decimals}f} ({lowest:.{decimals}f}–{highest:.{decimals}f})"


def write_csv(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write all rows under one header."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in row.items()} for row in rows
        )
