"""Time and memory of an output layer with its loss: whole logits and cross-entropy, beside ours in chunks."""

from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

import psutil
import torch

from benchmarks.contenders import BASELINES, cpu_contenders, layer_inputs
from benchmarks.harness import Row, Step, in_fresh_process, ratios, spread, step_times, time_columns, training_step
from experiments.machine import forget_peak_memory, peak_memory_mib

# The layers beside the baseline whose ratios have columns, too.
ALSO_COMPARED = {"linear_cross_entropy": "ratio_to_fused", "linear_cross_entropy, chunked": "ratio_to_chunked"}


def measure_linear(settings: Mapping[str, Any]) -> Iterator[Row]:
    """A row for each layer: seconds of forward and backward, and the memory that a fresh process takes."""
    linear = settings["linear"]
    size = {**linear["size"], "dtype": torch.float32, "seed": settings["seed"]}
    steps = _steps(size)
    one_call_a_round = {"block_seconds": 0, "slow_seconds": inf}
    times = step_times(steps, dict.fromkeys(steps, linear["rounds"]), one_call_a_round)
    case = {"part": "linear", "kind": "loss", "regime": "sparse", "dtype": "float32", "threads": 1}
    case |= {name: size[name] for name in ("rows", "classes")}
    for one in cpu_contenders("layer"):
        seconds = times[one.name, 1]
        row = {**case, "contender": one.name, "source": one.source}
        row |= time_columns(seconds, times[BASELINES["layer"], 1])
        for other, column in ALSO_COMPARED.items():
            row |= spread(ratios(seconds, times[other, 1]), column)
        yield {**row, "memory_mib": in_fresh_process(peak_of, one.name, size)}


def peak_of(name: str, size: Mapping[str, Any]) -> float:
    """MiB that forward and backward take on top of the inputs, in this process."""
    _steps({**size, "rows": 8, "classes": 16})[name]()  # imports modules
    step = _steps(size)[name]
    forget_peak_memory()
    before = psutil.Process().memory_info().rss / 2**20
    step()
    return peak_memory_mib() - before


def _steps(size: Mapping[str, Any]) -> dict[str, Step]:
    """Forward and backward of every layer, of the same inputs."""
    tensors, _ = layer_inputs(**size)["layer"]
    return {one.name: training_step(one.load(), tensors, ()) for one in cpu_contenders("layer")}
