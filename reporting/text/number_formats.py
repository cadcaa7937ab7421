"""Formats of numbers in tables, verdicts, pages and the report."""

from math import isnan

NOTHING = "–"  # in place of a missing number
NOT_REACHED = "not reached"  # if no run has reached the epoch


def number(value: float, decimals: int, sign: str = "-") -> str:
    """A number with fixed decimals and a true minus, such as "−0.13"; the sign "+" shows a plus too."""
    if isnan(value):
        return NOTHING
    text = f"{round(value, decimals) + 0.0:{sign}.{decimals}f}"  # rounded first: −0.001 is 0.00, with no minus
    return text.replace("-", "−")


def as_printed(middle: float, half_width: float, decimals: int, sign: str = "-") -> str:
    """A number of the paper; the ends of a range that it prints, such as "0.910 to 0.950"."""
    ends = (number(end, decimals, sign) for end in (middle - half_width, middle + half_width))
    return " to ".join(dict.fromkeys(ends))


def with_deviation(mean: float, deviation: float, decimals: int) -> str:
    """A mean with its standard deviation, such as "0.789 ± 0.002"; without the deviation if it is NaN."""
    shown = number(mean, decimals)
    return shown if isnan(mean) or isnan(deviation) else f"{shown} ± {number(deviation, decimals)}"


def with_interval(mean: float, low: float, high: float, decimals: int, sign: str = "-") -> str:
    """A mean with its interval, such as "+0.50 [+0.41, +0.59]"; without the interval if it is NaN."""
    shown = number(mean, decimals, sign)
    if isnan(mean) or isnan(low):
        return shown
    return f"{shown} [{number(low, decimals, sign)}, {number(high, decimals, sign)}]"


def over_seeds(seeds: int, of: int) -> str:
    """The number of seeds behind a number, such as " (3 of 5 seeds)"; empty for all seeds."""
    return f" ({seeds} of {of} seeds)" if seeds < of else ""
