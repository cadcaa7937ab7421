"""Theirs beside ours."""

from math import isnan

import pandas as pd
import pytest

from reporting.kept_runs import KeptRuns
from reporting.report.paper_tables import shown_tables
from tests.reporting.synthetic_results import RESULTS, write_short


@pytest.fixture(scope="module")
def tables(own_runs):
    return shown_tables(own_runs)


def test_every_mean_is_that_of_the_kept_table(tables, own_runs):
    assert [table.name for table in tables] == list(own_runs.declaration.tables)
    for table in tables:
        kept = pd.read_csv(RESULTS / f"tables/{table.name}.csv")
        levels = kept[kept["kind"] == "level"]
        for label, cells in table.rows:
            assert len(cells) == len(table.headings)
            means = [cell.value for cell in cells if not isnan(cell.value)]
            assert sorted(means) == sorted(levels[levels["row"] == label]["mean"].dropna()), (table.name, label)


def test_a_number_of_ours_names_its_runs_and_theirs_has_none(tables, own_runs):
    table1 = tables[0]
    _, cells = table1.rows[0]
    theirs, ours = cells[:2]
    assert table1.headings[:2] == ["accuracy, test: theirs", "accuracy, test: ours"]
    assert (theirs.text, theirs.group) == ("0.910 ± 0.006", "")
    assert ours.group == f"airline/{own_runs.selections['table1'].rows['learned_1.25_1.50'].records[0].run_id}"
    assert ours.column == "test/accuracy"


def test_an_epoch_that_no_run_has_reached_has_no_number(tmp_path):
    tables = {table.name: table for table in shown_tables(KeptRuns.load(write_short(tmp_path)))}
    dynamics = tables["dynamics"]
    place = dynamics.headings.index("accuracy, epoch 6, test: ours")
    assert {cells[place].text for _, cells in dynamics.rows} == {"not reached"}
