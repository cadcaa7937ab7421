"""Many cases in one test: all of them are tried, and the failure names each case that failed and by how much."""

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from textwrap import shorten
from typing import Any

import pytest

_MOST_SHOWN, _WIDTH = 10, 100  # cases, and characters of a value

Case = Callable[..., AbstractContextManager[None]]
Test = Callable[..., None]


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
            name = ", ".join(f"{key}={shorten(str(value), _WIDTH)}" for key, value in described.items())
            failures.append(f"[{name}] {type(error).__name__}: {error}")

    yield case
    assert count, "no case was tried"
    if failures:
        more = len(failures) - _MOST_SHOWN
        shown = failures[:_MOST_SHOWN] + ([f"and {more} more"] if more > 0 else [])
        raise AssertionError(f"{len(failures)} of {count} cases failed\n" + "\n".join(shown))


def for_every(names: str = "", rows: Iterable[Any] = ((),), **axes: Iterable[Any]) -> Callable[[Test], Test]:
    """A test whose cases are every combination of a row of values for the names with a value of each axis.

    A failure shows a value, or its key where the axis is a dict: ``@for_every("q, r", ORDERS, function=MAPS)``.
    """
    together = names.replace(",", " ").split()
    choices = [
        [(dict(zip(together, row, strict=True)),) * 2 for row in rows],
        *(
            [({name: key}, {name: axis[key] if isinstance(axis, dict) else key}) for key in axis]
            for name, axis in axes.items()
        ),
    ]

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def try_every_case(**fixtures: object) -> None:
            with every_case() as case:
                for chosen in itertools.product(*choices):
                    shown, given = (functools.reduce(dict.__or__, parts) for parts in zip(*chosen, strict=True))
                    with case(**shown):
                        test(**fixtures, **given)

        signature = inspect.signature(test)
        fixtures = [one for name, one in signature.parameters.items() if name not in {*together, *axes}]
        try_every_case.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return try_every_case

    return decorate


def assert_errors_within(errors: dict[object, float], goal: float) -> None:
    """That the worst error of all cases is at most the goal; NaN is worse than any number."""
    assert errors, "no case was tried"
    worst = max(errors, key=lambda case: (errors[case] != errors[case], errors[case]))
    beyond = sum(not error <= goal for error in errors.values())
    assert not beyond, f"{beyond} of {len(errors)} cases miss {goal:g}; the worst is {errors[worst]:.3g} at {worst}"
