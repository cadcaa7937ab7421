"""A list of a few measured times, from results/benchmarks/: three fast cases, and the slow ones."""

from pathlib import Path

import pandas as pd

from reporting.text.number_formats import number

MAPS = "results/benchmarks/maps"
TABLE_6 = "results/benchmarks/table6"
GPU_LOSSES = "results/benchmarks/gpu_losses.csv"
SHARMIX = "SharMiX (1.25, 1.5)"


def list_measured_times(root: Path, to_root: str, *names: str) -> str:
    """A list of relative times: of a loss, of the `entmax` package, of a training step, and of the slow cases.

    `names` chooses some of them: "loss", "package", "step", "slow".
    """
    maps, steps = (pd.read_csv(root / f"{name}.csv") for name in (MAPS, TABLE_6))
    cells = maps.query("part == 'cell' and dtype == 'float32' and threads == 1")
    cells = cells.set_index(["kind", "rows", "classes", "regime", "contender"]).sort_index()
    ratios = cells["median_ratio"]
    large, dense, small = ("loss", 512, 32000, "sparse"), ("map", 256, 10000, "dense"), ("map", 64, 100, "sparse")
    package, full_sort = (
        number(ratios[*large, f"entmax15 (package){sort}"] / ratios[*large, "1.5-entmax"], 0)
        for sort in ("", ", full sort")
    )
    steps = steps.set_index(["experiment", "activation"])
    step, translation = steps.loc["cifar100", "sharmix_learned"], steps.loc["multi30k"]["relative_time"]
    whole = number(translation["benchmarks.entmax_sort.TopK"] / translation["entmax"], 2)
    interval = f"{number(step['low'], 2)} to {number(step['high'], 2)}"
    measured, table = f"([measured]({to_root}{MAPS}.md))", f"([Table 6]({to_root}{TABLE_6}.md))"
    slow_small, slow_dense = (number(ratios[*cell, SHARMIX], 1) for cell in (small, dense))
    nonconcave = number(ratios[*dense, "SharMiX (1.75, 1.25)"], 0)
    losses = pd.read_csv(root / GPU_LOSSES).set_index(["rows", "classes", "scale", "dtype", "contender"])
    on_a_gpu = number(losses["median_ratio"][4096, 32000, 2.0, "float32", SHARMIX], 2)
    lines = {
        "loss": "A **cheap loss over a large vocabulary**: where few of 32,000 logits are near the largest, the loss "
        f"of {SHARMIX} and its gradient take {number(ratios[*large, SHARMIX], 2)} of cross-entropy's time on one CPU "
        f"core {measured}, and {on_a_gpu} on an H100 ([measured]({to_root}docs/speed.md#on-a-gpu-with-cuda)), in "
        "float32.",
        "package": f"**{package}** times faster than `Entmax15Loss` of the `entmax` package at its default, which "
        "sorts the 100 largest logits of a row, and more where these do not suffice: 1.5-entmax's loss of the same "
        f"logits {measured}. A whole training step of translation takes {whole} times as long with the package "
        f"{table}. Where it sorts whole rows, its loss takes {full_sort} times as long as ours.",
        "step": f"**{number(step['relative_time'], 2)}** of softmax's time, {interval}: a training step of "
        f"ResNet-18 on CIFAR-100 with learned orders {table}.",
        "slow": f"**Slow**: the map {SHARMIX} takes {slow_small} times softmax's time where it is small (64 × 100), "
        f"{slow_dense} times where all of 256 × 10,000 logits matter, and there at (1.75, 1.25), where the entropy is "
        f"not concave, {nonconcave} times {measured}.",
    }
    return "\n".join(f"- {lines[name]}" for name in names or lines)
