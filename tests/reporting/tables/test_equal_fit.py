"""Sparsity where training sets are learned equally well."""

from types import SimpleNamespace

import pytest

from reporting.records.groups import Group
from reporting.records.runs import Runs
from reporting.tables.equal_fit import equal_fit_page, sparsity_at_fit
from tests.reporting.synthetic_records import as_read, make_record


def runs_of(*curves):
    """A run for each curve, which is a list of (accuracy on train, sparsity on test)."""
    records = []
    for seed, curve in enumerate(curves):
        record = make_record(seed=seed, epochs=len(curve))
        for row, (accuracy, sparsity) in zip(record["curves"], curve, strict=True):
            row |= {"train/accuracy": accuracy, "train/macro_f1": accuracy, "test/sparsity": sparsity}
        records.append(as_read(record))
    return Runs(tuple(records))


def page_of(fits, **sets):
    groups = [Group(name.replace("_", "-"), runs, {}) for name, runs in sets.items()]
    declaration = SimpleNamespace(confidence=0.95, narrow=0.05, fits=fits)
    return equal_fit_page(
        SimpleNamespace(declaration=declaration, training_sets=[(SimpleNamespace(title="A"), groups)])
    )


def rises(*ends):
    """Runs that fit 0, then all of the training set; their sparsity goes from 0 to each of the ends."""
    return runs_of(*([(0.0, 0.0), (1.0, end)] for end in ends))


def test_sparsity_is_interpolated_where_a_run_first_reaches_the_fit():
    falls_back = [(0.1, 0.0), (0.5, 0.4), (0.3, 0.9), (0.7, 0.8)]
    runs = runs_of(falls_back, [(0.1, 0.2), (0.3, 0.6)])
    assert sparsity_at_fit(runs, "train/accuracy", 0.2) == pytest.approx([0.1, 0.4])
    assert sparsity_at_fit(runs, "train/accuracy", 0.5) == pytest.approx([0.4])
    assert sparsity_at_fit(runs, "train/accuracy", 0.6) == pytest.approx([0.825])
    for level in (0.05, 0.8):  # before the first epoch, and never
        assert sparsity_at_fit(runs, "train/accuracy", level) == []
    assert sparsity_at_fit(runs, "train/macro", 0.2) == []


@pytest.mark.parametrize(
    ("mean", "spread", "shown"),
    [
        (0.50, 0.003, "+0.100 [+0.082, +0.118], sparser"),
        (0.70, 0.003, "−0.100 [−0.118, −0.082], denser"),
        (0.59, 0.003, "+0.010 [−0.008, +0.028], about equal"),
        (0.50, 0.1, "+0.100 [−1.166, +1.366], not shown"),
    ],
)
def test_a_difference_says_what_its_interval_shows(mean, spread, shown):
    """With two seeds of one spread Welch's interval is 4.303 standard deviations wide to each side."""
    page = page_of([1.0], long_tailed=rises(0.597, 0.603), control=rises(mean - spread, mean + spread))
    assert page.count(shown) == 2  # by accuracy and by macro-F1
    assert page.count("| 1.0 ") == 2


def test_a_set_with_one_seed_and_a_fit_that_one_set_never_reaches_are_left_out():
    tail, other = rises(0.4, 0.6), runs_of([(0.1, 0.1), (0.5, 0.4)], [(0.1, 0.1), (0.5, 0.5)])
    page = page_of([0.3, 0.7], long_tailed=tail, balanced=other, control=rises(0.5))
    assert "| 0.3 " in page
    assert "| 0.7 " not in page
    assert "control" not in page
    assert page_of([0.7], long_tailed=tail, balanced=other) == page_of([0.3], balanced=other) == ""
