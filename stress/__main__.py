"""Tries to break the project in every way we know, and counts what survives.

python -m stress [STAGE ...] [--minutes N] [--seed S]
"""

import argparse
import importlib
import os
import re
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime

import pandas as pd

from benchmarks.maps import provenance
from experiments.files import write_atomically
from experiments.identity import ROOT
from stress.outcome import Outcome

# The stages, and the share of the time that each has.
STAGES = {
    "fuzz": 2,
    "sanitizers": 2,
    "kills": 4,
    "shared_folder": 2,
    "spoiled_files": 3,
    "settings_generation": 3,
    "bad_data": 2,
}
REPORT = ROOT / "docs" / "reliability.md"
MARKS = "<!-- figures: begin, written by make stress -->", "<!-- figures: end -->"


@dataclass(frozen=True)
class Campaign:
    """The stages that ran, and how."""

    outcomes: dict[str, Outcome]
    minutes: float
    seed: int

    @property
    def survived(self) -> bool:
        return all(outcome.survived == outcome.tried > 0 for outcome in self.outcomes.values())

    def table(self) -> str:
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
            for name, outcome in self.outcomes.items()
        ]
        return pd.DataFrame(lines).to_markdown(index=False)

    def text(self) -> str:
        """The table, and where its numbers come from."""
        source = provenance()
        dirty = ", with uncommitted changes" if source["dirty"] else ""
        return (
            f"{self.table()}\n\nCommit {str(source['commit'])[:12]}{dirty}, {datetime.now(UTC).date()}, "
            f"{self.minutes:.0f} minutes, seed {self.seed}; {source['processor']}, {source['cores']} cores, torch "
            f"{source['torch']}. Repeat: `python -m stress --minutes {self.minutes:.0f} --seed {self.seed}`."
        )


def campaign(stages: list[str], minutes: float, seed: int) -> Campaign:
    """Run stages one after the other, each in its share of the minutes."""
    began, outcomes = time.monotonic(), {}
    for number, stage in enumerate(stages):
        left = max(0.0, 60 * minutes - (time.monotonic() - began))
        seconds = left * STAGES[stage] / sum(STAGES[name] for name in stages[number:])
        print(f"{stage}: {seconds:.0f} s, {left / 60:.1f} minutes left in all", file=sys.stderr, flush=True)
        outcomes[stage] = outcome = importlib.import_module(f"stress.{stage}").run(seconds, seed)
        found = f"{outcome.tried} tried, {outcome.survived} survived, {outcome.lost} lost, {outcome.wrong} wrong"
        print(f"{stage}: {found}", file=sys.stderr, flush=True)
    return Campaign(outcomes, (time.monotonic() - began) / 60, seed)


def with_figures(text: str, figures: str) -> str:
    """The text of the report with these figures between its marks."""
    begin, end = map(re.escape, MARKS)
    new, count = re.subn(f"{begin}.*{end}", lambda _: f"{MARKS[0]}\n\n{figures}\n\n{MARKS[1]}", text, flags=re.DOTALL)
    assert count == 1, f"{REPORT}: the marks of the figures are gone"
    return new


def main(arguments: list[str] | None = None) -> None:
    """Command line: run stages; all of them together write their figures into docs/reliability.md."""
    parser = argparse.ArgumentParser(prog="python -m stress", description=__doc__)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"{', '.join(STAGES)} (default: all)")
    parser.add_argument("--minutes", type=float, default=14.0, help="for all stages together (default: 14)")
    parser.add_argument("--seed", type=int, default=21, help="of all that is drawn (default: 21)")
    options = parser.parse_args(arguments)
    if unknown := {*options.stages} - {*STAGES}:
        parser.error(f"there is no stage {', '.join(sorted(unknown))}; there are {', '.join(STAGES)}")
    os.environ["OMP_NUM_THREADS"] = "1"  # two trials side by side
    found = campaign(options.stages or [*STAGES], options.minutes, options.seed)
    print(found.table())
    for stage, outcome in found.outcomes.items():
        print(*(f"{stage}: {failure}" for failure in outcome.failures), sep="\n", end="")
    if not options.stages:
        write_atomically(REPORT, with_figures(REPORT.read_text(encoding="utf-8"), found.text()))
    sys.exit(0 if found.survived else 1)


if __name__ == "__main__":
    main()
