"""Time and memory of an output layer with its loss: whole logits and cross-entropy, beside ours in chunks."""

from collections.abc import Mapping
from typing import Any

import psutil
import torch

from benchmarks.contenders import cpu_contenders, layer_inputs
from benchmarks.harness import Row, in_fresh_process, ratios, spread, step_times, training_step
from experiments.machine import forget_peak_memory, peak_memory_mib

COMPARED = {  # each of these layers has columns of the ratio to it
    "linear + cross-entropy": "ratio",
    "linear_cross_entropy": "ratio_to_fused",
    "linear_cross_entropy, chunked": "ratio_to_chunked",
}


def measure_linear(settings: Mapping[str, Any]) -> list[Row]:
    """A row for each layer: seconds of forward and backward, and the memory that a fresh process takes."""
    size, layers = settings["linear"], cpu_contenders("layer")
    tensors = _inputs(size, settings["seed"])
    steps = {one.name: training_step(one.load(), tensors, ()) for one in layers}
    pace = {"block_seconds": 0, "slow_seconds": float("inf")}  # one call a round
    times = step_times(steps, dict.fromkeys(steps, size["rounds"]), pace)
    case = {"part": "linear", "kind": "loss", "regime": "sparse", "dtype": "float32", "threads": 1}
    case |= {"rows": size["tokens"], "classes": size["classes"]}
    rows = []
    for one in layers:
        seconds = times[one.name, 1]
        row = {**case, "contender": one.name, "source": one.source, **spread(seconds, "microseconds", 1e6)}
        row |= {"goal": size["goals"].get(one.name), "memory_goal_mib": size["memory_goals_mib"].get(one.name)}
        for other, column in COMPARED.items():
            row |= spread(ratios(seconds, times[other, 1]), column)
        rows.append({**row, "memory_mib": in_fresh_process(peak_of, one.name, size, settings["seed"])})
    return rows


def peak_of(name: str, size: Mapping[str, Any], seed: int) -> float:
    """MiB that forward and backward take on top of the inputs, in this process."""
    run = next(one.load() for one in cpu_contenders("layer") if one.name == name)
    training_step(run, _inputs({**size, "tokens": 8, "classes": 16}, seed), ())()  # imports modules
    step = training_step(run, _inputs(size, seed), ())
    forget_peak_memory()
    before = psutil.Process().memory_info().rss / 2**20
    step()
    return peak_memory_mib() - before


def _inputs(size: Mapping[str, Any], seed: int) -> tuple[torch.Tensor, ...]:
    return layer_inputs(size["tokens"], size["features"], size["classes"], size["scale"], torch.float32, seed)
