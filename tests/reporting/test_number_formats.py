"""How numbers are written."""

from math import nan

from reporting.number_formats import NOTHING, number


def test_numbers_have_a_true_minus_and_no_negative_zero():
    assert [number(value, 2) for value in (-0.126, 0.5, -0.001)] == ["−0.13", "0.50", "0.00"]
    assert [number(value, 1, "+") for value in (1.25, 0.0, -3.0)] == ["+1.2", "+0.0", "−3.0"]
    assert number(nan, 3) == NOTHING
