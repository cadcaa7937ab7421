"""How tables read in Markdown, and how numbers are written."""

from math import nan

import pandas as pd

from reporting.text.markdown import narrow
from reporting.text.number_formats import NOTHING, as_printed, number


def test_a_wide_table_is_cut_into_tables_whose_rows_are_named_alike():
    wide = pd.DataFrame({"data": ["a", "a"], "map": ["x", "y"], **{f"column {n}": ["1" * 8] * 2 for n in range(9)}})
    *tables, last = narrow(wide).split("\n\n")
    assert tables
    for table in [*tables, last]:
        lines = table.splitlines()
        assert max(map(len, lines)) <= 110
        assert [cell.strip() for cell in lines[0].split("|")[1:3]] == ["data", "map"]
    titles = [cell.strip() for table in [*tables, last] for cell in table.splitlines()[0].split("|")[3:-1]]
    assert titles == list(wide)[2:]
    assert narrow(wide[["data", "map"]]).count("\n\n") == 0


def test_numbers_have_a_true_minus_and_no_negative_zero():
    assert [number(value, 2) for value in (-0.126, 0.5, -0.001)] == ["−0.13", "0.50", "0.00"]
    assert [number(value, 1, "+") for value in (1.25, 0.0, -3.0)] == ["+1.2", "+0.0", "−3.0"]
    assert number(nan, 3) == NOTHING


def test_a_range_of_the_paper_is_shown_by_its_ends_and_a_number_alone():
    assert as_printed(0.93, 0.02, 3) == "0.910 to 0.950"
    assert as_printed(-0.13, 0.0, 2) == "−0.13"
