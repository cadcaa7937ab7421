"""Sparsity where training sets are learned equally well."""

from math import isnan
from types import SimpleNamespace

import pytest

from reporting.records.groups import Group
from reporting.records.runs import Runs
from reporting.tables.equal_fit import equal_fit_page, sparsity_at_fit
from tests.reporting.synthetic_records import as_read, make_record


def runs_of(*curves):
    """A run for each curve, a list of (accuracy on train, sparsity on test); macro-F1 is half of accuracy."""
    records = []
    for seed, curve in enumerate(curves):
        record = make_record(seed=seed, epochs=len(curve))
        for row, (accuracy, sparsity) in zip(record["curves"], curve, strict=True):
            row |= {"train/accuracy": accuracy, "train/macro_f1": accuracy / 2, "test/sparsity": sparsity}
            if sparsity is None:
                del row["test/sparsity"]
        records.append(as_read(record))
    return Runs(tuple(records))


def rises(*ends):
    """Runs that fit 0.2 and 0.6 of the training set after two epochs; sparsity goes from 0 to each of the ends."""
    return runs_of(*([(0.0, 0.0), (0.4, end), (0.8, 1.0)] for end in ends))


def page_of(fits, **sets):
    groups = [Group(name.replace("_", "-"), runs, {}) for name, runs in sets.items()]
    declaration = SimpleNamespace(confidence=0.95, equal_within=0.05, fits=fits)
    return equal_fit_page(
        SimpleNamespace(declaration=declaration, training_sets=[(SimpleNamespace(title="A"), groups)])
    )


def rows_of(page, heading):
    """The cells of the rows below a heading, which has the other set and the measure of fit."""
    _, *found = page.partition(f"## A, long-tailed and {heading}\n")
    lines = found[-1].partition("#")[0].splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| 0")]


def test_sparsity_is_interpolated_where_a_run_first_reaches_the_fit():
    falls_back = [(0.0, 0.0), (0.2, 0.4), (0.8, 0.2), (0.6, 0.8), (1.0, 0.9)]  # at ends of epochs 0.1, 0.5, 0.7, 0.8
    runs = runs_of(falls_back, [(0.1, 0.2), (0.3, 0.6), (0.5, 0.9)])  # 0.2 and 0.4
    assert sparsity_at_fit(runs, "train/accuracy", 0.3).tolist() == pytest.approx([0.2, 0.4])
    assert sparsity_at_fit(runs, "train/accuracy", 0.6).tolist() == pytest.approx([0.3, float("nan")], nan_ok=True)
    assert sparsity_at_fit(runs, "train/macro_f1", 0.15).tolist() == pytest.approx([0.2, 0.4])
    for level in (0.05, 0.9):  # before the end of the first epoch, and never
        assert all(map(isnan, sparsity_at_fit(runs, "train/accuracy", level)))
    assert sparsity_at_fit(runs, "train/other", 0.3).isna().tolist() == [True, True]


def test_a_run_without_enough_measurements_has_no_sparsity_at_a_fit():
    never, once = [(0.0, None), (0.4, None), (0.8, None)], [(0.4, 0.5)]
    every_second = [(0.0, 0.2), (0.2, None), (0.4, 0.6), (0.6, None)]  # at the ends 0.1 and 0.5
    runs = runs_of(never, once, every_second)
    nan = float("nan")
    assert sparsity_at_fit(runs, "train/accuracy", 0.3).tolist() == pytest.approx([nan, nan, 0.4], nan_ok=True)


@pytest.mark.parametrize(
    ("mean", "spread", "difference", "shown"),
    [
        (0.50, 0.003, "+0.100 [+0.082, +0.118]", "sparser"),
        (0.70, 0.003, "−0.100 [−0.118, −0.082]", "denser"),
        (0.57, 0.003, "+0.030 [+0.012, +0.048]", "sparser, about equal"),
        (0.59, 0.003, "+0.010 [−0.008, +0.028]", "about equal"),
        (0.50, 0.1, "+0.100 [−1.166, +1.366]", "not shown"),
    ],
)
def test_a_difference_says_what_its_interval_shows(mean, spread, difference, shown):
    """With two seeds of one spread Welch's interval has 4.303 standard errors to each side."""
    page = page_of([0.3, 0.6], long_tailed=rises(0.597, 0.603), control=rises(mean - spread, mean + spread))
    row = ["0.600", f"{mean:.3f}", difference, shown]
    assert rows_of(page, "control, by accuracy on train")[1] == ["0.6", *row]
    assert rows_of(page, "control, by macro-F1 on train") == [["0.3", *row]]


def test_sets_may_have_different_numbers_of_seeds():
    page = page_of([0.6], long_tailed=rises(0.4, 0.6), control=rises(0.2, 0.4, 0.6))
    assert rows_of(page, "control, by accuracy on train")[0][1:4] == ["0.500", "0.400", "+0.100 [−0.398, +0.598]"]


def test_equal_runs_of_both_sets_are_about_equal():
    page = page_of([0.6], long_tailed=rises(0.6, 0.6), control=rises(0.6, 0.6))
    (row,) = rows_of(page, "control, by accuracy on train")
    assert row[3:] == ["+0.000 [+0.000, +0.000]", "about equal"]


def test_only_sets_with_several_seeds_and_levels_that_every_seed_passes_are_compared():
    steady, once = rises(0.4, 0.6), rises(0.5)
    slower = runs_of([(0.1, 0.1), (0.5, 0.4), (0.3, 0.5)], [(0.1, 0.1), (0.1, 0.1), (0.9, 0.5)])  # one passes 0.5
    page = page_of([0.4, 0.5], long_tailed=steady, balanced=slower, control=steady, single=once)
    levels = [[row[0] for row in rows_of(page, f"{name}, by accuracy on train")] for name in ("balanced", "control")]
    assert levels == [["0.4"], ["0.4", "0.5"]]
    assert "single" not in page
    page = page_of([0.4, 0.5], long_tailed=slower, control=steady)
    assert [row[0] for row in rows_of(page, "control, by accuracy on train")] == ["0.4"]
    for tail in ({}, {"long_tailed": once}):
        assert page_of([0.4], balanced=slower, control=steady, **tail) == ""
    assert page_of([0.9], long_tailed=steady, balanced=slower) == ""
