"""Everything that the runs of one configuration measured, as one table."""

import pytest

from experiments.record import RecordError
from reporting.records.runs import Runs
from tests.reporting.synthetic_records import as_read, make_record


def runs_of(*records):
    return Runs(tuple(as_read(record) for record in records))


def test_values_are_those_of_the_epoch_and_of_the_seeds_that_reached_it():
    runs = runs_of(make_record(seed=2, epochs=4), make_record(seed=1, epochs=2, test={"accuracy": 0.7}))
    assert list(runs.values("test", "accuracy").items()) == [(2, 0.8), (1, 0.7)]
    assert runs.values("test", "accuracy", 2).to_dict() == pytest.approx({2: 0.8 - 0.1 / 2 + 0.1 / 4, 1: 0.7})
    assert runs.values("test", "accuracy", 3).index.tolist() == [2]
    assert runs.values("test", "accuracy", 9).empty
    assert Runs().values("test", "accuracy").empty


def test_a_metric_that_was_not_measured_is_named_with_its_run():
    first, extended = make_record(seed=1), make_record(seed=2, test={"few_accuracy": 0.1})
    with pytest.raises(RecordError) as error:
        runs_of(first, extended).values("test", "few_accuracy")
    assert str(error.value) == (
        f"airline: the run run_id={first['run_id']} with seed=1 did not measure 'few_accuracy' on test; "
        "it measured accuracy, brier, coverage, macro_f1, sparsity, support, zero_true"
    )
