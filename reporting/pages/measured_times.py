"""Measured times in short, from results/benchmarks/: three that are fast, and the cases that are slow."""

from pathlib import Path

import pandas as pd

from reporting.number_formats import number
from reporting.yaml_files import TableError

MAPS = "results/benchmarks/maps"
TABLE_6 = "results/benchmarks/table6"
SHARMIX = "SharMiX (1.25, 1.5)"


def list_measured_times(root: Path, to_root: str, *names: str) -> str:
    """A list of relative times: of a loss, of the `entmax` package, of a training step, and of the slow cases.

    `names` chooses some of them: "loss", "package", "step", "slow".
    """
    maps, steps = (pd.read_csv(root / f"{name}.csv") for name in (MAPS, TABLE_6))
    large = maps[_at(maps, "loss", 512, 32000, "sparse")]
    dense = maps[_at(maps, "map", 256, 10000, "dense")]
    small = maps[_at(maps, "map", 64, 100, "sparse")]
    entmax, package = (_value(large, name, "median_microseconds") for name in ("1.5-entmax", "entmax15 (package)"))
    step = _only(steps[(steps["experiment"] == "cifar100") & (steps["activation"] == "sharmix_learned")], TABLE_6)
    interval = f"{number(step['low'], 2)} to {number(step['high'], 2)}"
    measured, table = f"([measured]({to_root}{MAPS}.md))", f"([Table 6]({to_root}{TABLE_6}.md))"
    slow_small, slow_dense = (number(_ratio(cell, SHARMIX), 1) for cell in (small, dense))
    nonconcave = number(_ratio(dense, "SharMiX (1.75, 1.25)"), 0)
    lines = {
        "loss": "A **cheap loss over a large vocabulary**: where few logits are near the largest, loss and gradient "
        f"take {number(_ratio(large, SHARMIX), 2)} of cross-entropy's time on one core, for 512 × 32,000 logits "
        f"{measured}.",
        "package": f"**{number(package / entmax, 0)}** times faster than the `entmax` package, which sorts whole "
        f"rows: 1.5-entmax's loss of the same logits {measured}.",
        "step": f"**{number(step['relative_time'], 2)}** of softmax's time, {interval}: a training step of "
        f"ResNet-18 on CIFAR-100 with learned orders {table}.",
        "slow": f"**Slow**: SharMiX's map takes {slow_small} times softmax's time where it is small (64 × 100), "
        f"{slow_dense} times where all of 256 × 10,000 logits matter, and there at (1.75, 1.25), where the entropy is "
        f"not concave, {nonconcave} times {measured}.",
    }
    return "\n".join(f"- {lines[name]}" for name in names or lines)


def _at(maps: pd.DataFrame, kind: str, rows: int, classes: int, regime: str) -> pd.Series:
    wanted = {"part": "cell", "kind": kind, "rows": rows, "classes": classes, "regime": regime}
    wanted |= {"dtype": "float32", "threads": 1}
    return pd.concat([maps[key] == value for key, value in wanted.items()], axis="columns").all(axis="columns")


def _ratio(maps: pd.DataFrame, contender: str) -> float:
    return _value(maps, contender, "median_ratio")


def _value(maps: pd.DataFrame, contender: str, column: str) -> float:
    return float(_only(maps[maps["contender"] == contender], f"{MAPS}, {contender}")[column])


def _only(lines: pd.DataFrame, place: str) -> pd.Series:
    if len(lines) != 1:
        raise TableError(f"{place}: {len(lines)} lines have the time that README shows, not one")
    return lines.iloc[0]
