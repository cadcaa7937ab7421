"""What an interval says of a goal."""

from math import nan

from benchmarks.verdicts import at_least, at_most
from tests.sharmix.cases import every_case


def test_the_whole_interval_decides():
    with every_case() as case:
        for low, high, below, above in (
            (0.9, 1.0, "met", "undecided"),
            (0.9, 1.1, "undecided", "undecided"),
            (1.0, 1.1, "undecided", "met"),
            (1.1, 1.2, "missed", "met"),
            (0.8, 0.9, "met", "missed"),
            (nan, nan, "undecided", "undecided"),
        ):
            with case(low=low, high=high):
                assert (at_most(1.0, low, high), at_least(1.0, low, high)) == (below, above)
