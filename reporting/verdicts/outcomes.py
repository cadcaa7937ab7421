"""How verdicts are counted and put into words, for README, the findings, the page of verdicts and the report."""

from collections import Counter
from collections.abc import Iterable, Mapping
from math import isnan
from typing import Any

from reporting.text.number_formats import NOT_REACHED, NOTHING, as_printed, number, over_seeds, with_interval
from reporting.verdicts import Verdict

# Readers first ask whether a number reproduces, does not, or is open. A right sign alone does not count as a reproduced
# number.
OUTCOMES = {
    "reproduces": [Verdict.REPRODUCES],
    "not shown": [Verdict.BY_WIDTH],
    "direction only": [Verdict.DIRECTION],
    "does not reproduce": [Verdict.FAILS],
    "open": [Verdict.TOO_FEW_SEEDS, Verdict.NOT_REACHED],
}
IN_PLURAL = {"reproduces": "reproduce", "does not reproduce": "do not reproduce"}


def outcome_of(verdict: str) -> str:
    """The key of `OUTCOMES` that a verdict belongs to."""
    return next(outcome for outcome, verdicts in OUTCOMES.items() if verdict in verdicts)


def count_outcomes(verdicts: Iterable[str]) -> dict[str, int]:
    """The number of verdicts with each outcome, in the order of `OUTCOMES`."""
    counts = Counter(map(outcome_of, verdicts))
    return {outcome: counts[outcome] for outcome in OUTCOMES}


def in_one_sentence(verdicts: Iterable[str]) -> str:
    """The counts as text: "Of 75 published numbers that we checked, 45 do not reproduce …, 2 do, and 28 are open"."""
    counts = count_outcomes(verdicts)
    fails, holds, by_width, direction, still_open = (
        counts[outcome] for outcome in ("does not reproduce", "reproduces", "not shown", "direction only", "open")
    )
    parts = [
        f"{fails} {_of(fails, 'does', 'do')} not reproduce under the recipe that we chose where the paper is silent",
        f"{holds} {_of(holds, 'does', 'do')}",
        *([f"{by_width} {_of(by_width, 'is', 'are')} not shown, because our interval is wide"] if by_width else []),
        *([f"{direction} {_of(direction, 'does', 'do')} in direction only"] if direction else []),
        *([f"{still_open} {_of(still_open, 'is', 'are')} open"] if still_open else []),
    ]
    total = sum(counts.values())
    listed = f"{', '.join(parts[:-1])}{',' if len(parts) > 2 else ''} and {parts[-1]}"
    return f"Of {total} published {_of(total, 'number', 'numbers')} that we checked, {listed}"


def theirs(line: Mapping[str, Any]) -> str:
    """The published number in a line of `reporting.verdicts.decide_claim`."""
    return as_printed(line["published"], line["half_width"], *_format(line))


def ours(line: Mapping[str, Any], split: str, of: int) -> str:
    """Our mean on a split with its interval, and the number of seeds if it is less than `of`."""
    if line["verdict"] == Verdict.NOT_REACHED:
        return NOT_REACHED
    mean, low, high = (line[f"{split}_{key}"] for key in ("mean", "low", "high"))
    seeds = "" if isnan(mean) else over_seeds(line[f"{split}_seeds"], of)
    return with_interval(mean, low, high, *_format(line)) + seeds


def our_mean(line: Mapping[str, Any]) -> str:
    """Our mean alone, on the split of the claim."""
    return number(line[f"{line['split']}_mean"], *_format(line))


def near_when(line: Mapping[str, Any]) -> str:
    """The hypothesis under which a published number comes near ours, with our number there and the distance."""
    if isnan(line["near_deviations"]):
        return line["near_when"] or NOTHING
    value, deviations = number(line["near_value"], *_format(line)), number(line["near_deviations"], 1)
    return f"{line['near_when']}: {value} ({deviations})"


def _format(line: Mapping[str, Any]) -> tuple[int, str]:
    """Decimals and sign: differences are percentage points, levels are fractions."""
    return (2, "+") if line["kind"] == "difference" else (3, "-")


def _of(count: int, singular: str, plural: str) -> str:
    return singular if count == 1 else plural
