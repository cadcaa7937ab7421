"""Tries to break the project at random, and counts what survives.

python -m tests.stress [STAGE ...] [--minutes N] [--seed S]
"""

import argparse
import importlib
import os
import sys
from datetime import UTC, datetime

import pandas as pd
import torch

from experiments.identity import code_of
from experiments.machine import environment
from tests.stress.outcome import Outcome

STAGES = {"fuzz": 1, "sanitizers": 1, "kills": 3}  # each with its share of the time


def main(arguments: list[str] | None = None) -> None:
    """Command line: run stages, and print how many trials survived. docs/reliability.md keeps the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.stress", description=__doc__)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"{', '.join(STAGES)} (default: all)")
    parser.add_argument("--minutes", type=float, default=7.0, help="for all stages together (default: 7)")
    parser.add_argument("--seed", type=int, default=21, help="of all random numbers (default: 21)")
    options = parser.parse_args(arguments)
    if unknown := {*options.stages} - {*STAGES}:
        parser.error(f"there is no stage {', '.join(sorted(unknown))}; there are {', '.join(STAGES)}")
    os.environ["OMP_NUM_THREADS"] = "1"
    stages, outcomes = options.stages or [*STAGES], {}
    for name in stages:
        seconds = 60 * options.minutes * STAGES[name] / sum(STAGES[one] for one in stages)
        print(f"{name}: {seconds:.0f} s", file=sys.stderr, flush=True)
        outcomes[name] = importlib.import_module(f"tests.stress.{name}").run(seconds, options.seed)
    print(table(outcomes))
    for name, outcome in outcomes.items():
        for failure in outcome.failures:
            print(f"{name}: {failure}")
    code, found = code_of({}), environment(torch.device("cpu"))
    repeat = ["python -m tests.stress", *options.stages, f"--minutes {options.minutes:g} --seed {options.seed}"]
    dirty = ", with uncommitted changes" if code["dirty"] else ""
    print(
        f"\nCommit {str(code['commit'])[:12]}{dirty}, {datetime.now(UTC).date()}; "
        f"{found['hardware']['processor']}, {found['hardware']['cores']} cores, torch {found['packages']['torch']}. "
        f"Repeat: `{' '.join(repeat)}`."
    )
    sys.exit(0 if all(outcome.survived == outcome.tried > 0 for outcome in outcomes.values()) else 1)


def table(outcomes: dict[str, Outcome]) -> str:
    """A line for each stage, as Markdown."""
    lines = [
        {
            "stage": name,
            "what is tried": outcome.what,
            "tried": outcome.tried,
            "survived": outcome.survived,
            "lost": outcome.lost,
            "silently wrong": outcome.wrong,
            "other ends": outcome.tried - outcome.survived - outcome.lost - outcome.wrong,
        }
        for name, outcome in outcomes.items()
    ]
    return pd.DataFrame(lines).to_markdown(index=False)


if __name__ == "__main__":
    main()
