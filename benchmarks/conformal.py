"""Support scores of all classes: their time beside TorchCP's `EntmaxScore`, and that both are equal.

python -m benchmarks.conformal [--folder FOLDER]

`make setup` installs TorchCP without its requirements torchsort, which has to be compiled, and torch-geometric: its
scores use neither.
"""

import argparse
import importlib
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock

import pandas as pd
import torch
from torch import Tensor

from experiments.files import write_atomically
from experiments.identity import code_of
from experiments.machine import environment
from sharmix.conformal import support_scores

ROWS, CLASSES = 1000, 100
GAMMAS = (2.0, 1.5, 1.25, 1.3, 1.75)  # the last two have no integer 1/(γ − 1)
ROUNDS = 3
GOAL = 100  # times faster

# What TorchCP imports for its graphs and for one of its losses, without which its scores work.
_ABSENT = ("torchsort", *(f"torch_geometric{part}" for part in ("", ".data", ".loader", ".nn", ".utils")))
_ABSENT += ("torch_geometric.utils.convert",)


def import_torchcp() -> ModuleType:
    """TorchCP's module `torchcp.classification`, with stand-ins for packages that its scores do not use.

    Raises:
        ImportError: TorchCP is not installed.
    """
    stand_ins = [name for name in _ABSENT if not importlib.util.find_spec(name.partition(".")[0])]
    sys.modules.update({name: MagicMock() for name in stand_ins})
    try:
        return importlib.import_module("torchcp.classification")
    finally:
        for name in stand_ins:
            del sys.modules[name]


def seconds(calls: dict[str, Callable[[], Tensor]], rounds: int) -> dict[str, float]:
    """The median time of each call, which take turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def measure(rows: int, classes: int, rounds: int) -> pd.DataFrame:
    """A line for each γ: both times, their ratio, and the largest relative difference of two scores."""
    peer = import_torchcp().EntmaxScore
    logits = 3 * torch.randn(rows, classes, generator=torch.Generator().manual_seed(0))
    lines = []
    for gamma in GAMMAS:
        theirs, ours = peer(gamma)(logits) * (gamma - 1), support_scores(logits, q=gamma, r=gamma)
        difference = (ours / theirs - 1)[theirs > 0].abs().max().item()
        calls = {
            "torchcp": lambda gamma=gamma: peer(gamma)(logits),
            "sharmix": lambda gamma=gamma: support_scores(logits, q=gamma, r=gamma),
            "sharmix, r = 2": lambda gamma=gamma: support_scores(logits, q=gamma, r=2.0),
        }
        found = seconds(calls, rounds)
        lines.append({"gamma": gamma, **found, "times faster": found["torchcp"] / found["sharmix"]})
        lines[-1]["largest relative difference"] = difference
    return pd.DataFrame(lines)


def page(table: pd.DataFrame) -> str:
    """The table with its origin."""
    found, code = environment(torch.device("cpu")), code_of({"_target_": "benchmarks.conformal.measure"})
    shown = pd.DataFrame(
        {
            "γ = q = r": table["gamma"],
            "TorchCP, ms": (1e3 * table["torchcp"]).map("{:.0f}".format),
            "sharmix, ms": (1e3 * table["sharmix"]).map("{:.1f}".format),
            "sharmix at r = 2, ms": (1e3 * table["sharmix, r = 2"]).map("{:.1f}".format),
            "times faster": table["times faster"].map("{:.0f}".format),
            f"goal ≥ {GOAL}": ["met" if ratio >= GOAL else "missed" for ratio in table["times faster"]],
            "largest relative difference": table["largest relative difference"].map("{:.1e}".format),
        }
    )
    return "\n\n".join(
        [
            "# Support scores beside TorchCP's EntmaxScore",
            f"Scores of all classes, {ROWS} × {CLASSES} float32 logits, one thread: the medians of {ROUNDS} rounds in "
            "which both take turns. Scores are equal up to the factor γ − 1; the last column is their largest relative "
            "difference. TorchCP loops over rows and classes. 1/(γ − 1) is an integer for the first three γ.",
            shown.to_markdown(index=False, disable_numparse=True),
            f"{found['hardware']['processor']}, {found['backend']['vectors']}; torch {found['packages']['torch']}, "
            f"torchcp {sys.modules['torchcp'].__version__}; commit {(code['commit'] or 'unknown')[:12]}"
            f"{', dirty' if code['dirty'] else ''}. Repeat: `make conformal`.",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.conformal", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("results/benchmarks"), help="where the page is written")
    folder = parser.parse_args().folder
    torch.set_num_threads(1)
    table = measure(ROWS, CLASSES, ROUNDS)
    write_atomically(folder / "conformal.csv", table.to_csv(index=False, float_format="%.4g"))
    text = page(table)
    write_atomically(folder / "conformal.md", text + "\n")
    print(text)


if __name__ == "__main__":
    main()
