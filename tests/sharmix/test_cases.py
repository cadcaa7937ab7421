"""That tests of many cases fail where one case fails, and say which."""

import inspect
import math

import pytest

from tests.sharmix.cases import assert_errors_within, every_case, for_every


def test_every_case_is_tried_and_those_that_fail_are_named():
    tried = []

    def some_fail():
        with every_case() as case:
            for q in (1.0, 1.5, 2.0, 3.0):
                with case(q=q):
                    tried.append(q)
                    assert q != 1.5, "first"
                    if q == 2.0:
                        raise ArithmeticError("second")
            with case(q=4), pytest.raises(ValueError, match="q"):
                pass

    with pytest.raises(AssertionError) as failure:
        some_fail()
    assert tried == [1.0, 1.5, 2.0, 3.0]
    for expected in ("3 of 5 cases failed", "[q=1.5] AssertionError: first", "[q=2.0] ArithmeticError: second"):
        assert expected in str(failure.value)
    assert "[q=4] Failed: DID NOT RAISE" in str(failure.value)


def test_every_combination_is_a_case_beside_the_fixtures_of_the_test():
    tried = []

    @for_every("q, r", [(1.0, 3.0), (2.0, 4.0)], function={"sine": math.sin, "root": math.sqrt})
    def some_fail(way, q, r, function):
        tried.append((way, q, r, function))
        assert function is math.sin or q == 1

    assert [*inspect.signature(some_fail).parameters] == ["way"]
    with pytest.raises(AssertionError, match=r"1 of 4 cases failed\n\[q=2.0, r=4.0, function=root\] AssertionError"):
        some_fail(way="plain")
    assert tried == [("plain", q, q + 2, function) for q in (1.0, 2.0) for function in (math.sin, math.sqrt)]


def test_no_case_at_all_fails():
    with pytest.raises(AssertionError, match="no case"), every_case():
        pass
    with pytest.raises(AssertionError, match="no case"):
        assert_errors_within({}, 1.0)
    with pytest.raises(AssertionError, match="no case"):
        for_every(q=[])(lambda q: None)()


def test_the_worst_error_is_named_and_nan_is_the_worst():
    assert_errors_within({"a": 0.5, "b": 1.0}, 1.0)
    with pytest.raises(AssertionError, match=r"2 of 3 cases miss 1; the worst is 3 at b"):
        assert_errors_within({"a": 2.0, "b": 3.0, "c": 0.0}, 1.0)
    with pytest.raises(AssertionError, match=r"the worst is nan at b"):
        assert_errors_within({"a": 2.0, "b": math.nan, "c": 0.0}, 1.0)
