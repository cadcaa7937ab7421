"""Time and memory of an output layer with its loss: whole logits and cross-entropy, beside ours in chunks."""

import multiprocessing
import statistics
from functools import partial
from timeit import timeit
from typing import Any

import psutil
import torch
from torch import Tensor
from torch.nn import LinearCrossEntropyOptions
from torch.nn.functional import cross_entropy, linear, linear_cross_entropy
from torch.utils.benchmark.utils.common import set_torch_threads

import sharmix
from experiments.machine import forget_peak_memory, peak_memory_mib

BASELINES = {  # each baseline has a column of the ratio to it
    "linear + cross-entropy": "ratio",
    "linear_cross_entropy": "ratio_to_fused",
    "linear_cross_entropy, chunked": "ratio_to_chunked",
}
LAYERS = {
    "linear + cross-entropy": lambda hidden, weight, targets: cross_entropy(linear(hidden, weight), targets),
    "linear_cross_entropy": lambda hidden, weight, targets: linear_cross_entropy(hidden, weight, targets),
    "linear_cross_entropy, chunked": lambda hidden, weight, targets: linear_cross_entropy(
        hidden, weight, targets, options=LinearCrossEntropyOptions()
    ),
    "linear_fenchel_young_loss (1, 1)": lambda hidden, weight, targets: sharmix.linear_fenchel_young_loss(
        hidden, weight, None, targets, 1.0, 1.0
    ),
    "linear + SharMiX (1.25, 1.5)": lambda hidden, weight, targets: sharmix.fenchel_young_loss(
        linear(hidden, weight), targets, 1.25, 1.5
    ),
    "linear_fenchel_young_loss (1.25, 1.5)": lambda hidden, weight, targets: sharmix.linear_fenchel_young_loss(
        hidden, weight, None, targets, 1.25, 1.5
    ),
}


def measure_linear(settings: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each layer: seconds of forward and backward, in turn, and the memory that a fresh process takes."""
    size = settings["linear"]
    tensors = _inputs(size, settings["seed"])
    with set_torch_threads(1):
        rounds = [
            {name: timeit(partial(run, name, tensors), number=1) for name in LAYERS} for _ in range(size["rounds"] + 1)
        ]
    times = {name: [one[name] for one in rounds[1:]] for name in LAYERS}  # the first round allocates
    rows = []
    for name, seconds in times.items():
        ratios = {
            f"{aspect}_{column}": function([own / other for own, other in zip(seconds, times[baseline], strict=True)])
            for baseline, column in BASELINES.items()
            for aspect, function in {"median": statistics.median, "lowest": min, "highest": max}.items()
        }
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            memory = pool.apply(peak_of, (name, size, settings["seed"]))
        rows.append(
            {
                "part": "linear",
                "kind": "loss",
                "contender": name,
                "source": "sharmix" if "SharMiX" in name or "fenchel" in name else "torch",
                "rows": size["tokens"],
                "classes": size["classes"],
                "regime": "sparse",
                "dtype": "float32",
                "threads": 1,
                "goal": size["goals"].get(name),
                "memory_goal_mib": size["memory_goals_mib"].get(name),
                "median_microseconds": 1e6 * statistics.median(seconds),
                "lowest_microseconds": 1e6 * min(seconds),
                "highest_microseconds": 1e6 * max(seconds),
                **ratios,
                "memory_mib": memory,
            }
        )
    return rows


def peak_of(name: str, size: dict[str, Any], seed: int) -> float:
    """MiB that forward and backward take on top of the inputs, in this process."""
    run(name, _inputs({**size, "tokens": 8, "classes": 16}, seed))  # imports modules, whose memory is not the layer's
    tensors = _inputs(size, seed)
    forget_peak_memory()
    before = psutil.Process().memory_info().rss / 2**20
    run(name, tensors)
    return peak_memory_mib() - before


def run(name: str, tensors: tuple[Tensor, Tensor, Tensor]) -> None:
    """Forward and backward of one of `LAYERS`."""
    hidden, weight, targets = tensors
    hidden.grad = weight.grad = None
    LAYERS[name](hidden, weight, targets).backward()


def _inputs(size: dict[str, Any], seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(size["tokens"], size["features"], generator=generator)
    weight = torch.randn(size["classes"], size["features"], generator=generator)
    weight *= size["scale"] / size["features"] ** 0.5
    targets = torch.randint(size["classes"], (size["tokens"],), generator=generator)
    return hidden.requires_grad_(), weight.requires_grad_(), targets
