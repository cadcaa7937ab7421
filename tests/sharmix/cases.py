"""Many cases in one test: all of them are tried, and the failure names each case that failed and by how much."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

_MOST_SHOWN = 10

Case = Callable[..., AbstractContextManager[None]]


@contextmanager
def every_case() -> Iterator[Case]:
    """Within it, ``with case(q=1.5, r=2.0): ...`` tries one case; an error there is kept until all are tried.

    Raises:
        AssertionError: a case failed.
    """
    failures: list[str] = []
    count = 0

    @contextmanager
    def case(**described: object) -> Iterator[None]:
        nonlocal count
        count += 1
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:
            name = ", ".join(f"{key}={value}" for key, value in described.items())
            failures.append(f"[{name}] {type(error).__name__}: {error}")

    yield case
    assert count, "no case was tried"
    if failures:
        more = len(failures) - _MOST_SHOWN
        shown = failures[:_MOST_SHOWN] + ([f"and {more} more"] if more > 0 else [])
        raise AssertionError(f"{len(failures)} of {count} cases failed\n" + "\n".join(shown))


def assert_errors_within(errors: dict[object, float], goal: float) -> None:
    """That the worst error of all cases is at most the goal; NaN is worse than any number."""
    assert errors, "no case was tried"
    worst = max(errors, key=lambda case: (errors[case] != errors[case], errors[case]))
    beyond = sum(not error <= goal for error in errors.values())
    assert not beyond, f"{beyond} of {len(errors)} cases miss {goal:g}; the worst is {errors[worst]:.3g} at {worst}"
