"""Ranges of numbers and durations as the pages write them."""

from collections.abc import Iterable

from reporting.number_formats import number

MINUTE, HOUR = 60, 3600  # seconds


def span(values: Iterable[float], decimals: int, sign: str = "-") -> str:
    """The smallest and the largest of some numbers, such as "0.893 to 0.910", or the value that all share."""
    values = list(values)
    low, high = (number(end, decimals, sign) for end in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def duration(seconds: float) -> str:
    """A duration as people say it: "7 s", "35 min", "3.8 h"."""
    if seconds < 2 * MINUTE:
        return f"{seconds:.0f} s"
    return f"{seconds / MINUTE:.0f} min" if seconds < 2 * HOUR else f"{seconds / HOUR:.1f} h"
