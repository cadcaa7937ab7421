"""Prints how far a long piece of work is."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
SILENT_SECONDS = 5.0


def announced(parts: Iterable[T], size: int, count: int, what: str) -> Iterator[T]:
    """The parts of the work, each of `size` of all `count` examples.

    From the fifth second on it prints its progress, each time after twice the time.
    """
    began, silent = time.monotonic(), SILENT_SECONDS
    for number, part in enumerate(parts, 1):
        yield part
        if (passed := time.monotonic() - began) > silent:
            done = min(number * size, count)
            print(f"{what}: {done:,} of {count:,} after {passed:.0f} s", file=sys.stderr, flush=True)
            silent = 2 * passed
