"""How numbers are written."""

from math import nan

from reporting.number_formats import NOTHING, number, with_deviation, with_interval


def test_numbers_have_a_true_minus_and_no_negative_zero():
    assert [number(value, 2) for value in (-0.126, 0.5, -0.001)] == ["−0.13", "0.50", "0.00"]
    assert [number(value, 1, "+") for value in (1.25, 0.0, -3.0)] == ["+1.2", "+0.0", "−3.0"]
    assert number(nan, 3) == NOTHING


def test_deviations_and_intervals_are_shown_where_there_are_any():
    assert with_deviation(0.7893, 0.002, 3) == "0.789 ± 0.002"
    assert with_deviation(0.7893, nan, 3) == "0.789"
    assert with_deviation(nan, nan, 3) == NOTHING
    assert with_interval(0.5, 0.41, 0.59, 2, "+") == "+0.50 [+0.41, +0.59]"
    assert with_interval(-0.5, nan, nan, 2, "+") == "−0.50"
