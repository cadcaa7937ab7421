"""What the callback counts in a training, and the page of what it logged."""

import pandas as pd
import pytest
import torch
from torch.nn.functional import cross_entropy, linear

from benchmarks import screened_words
from experiments.record import load_record
from sharmix import _layer_screened
from sharmix._operators import cpu
from tests.end_to_end.runner import records, succeed

needs_kernel = pytest.mark.skipif(not cpu.kernel, reason="needs the compiled kernel")
SIZES = "data.train_size=4000", "data.evaluation_size=4", "trainer.max_epochs=2"
CALLBACK = "+callbacks.words={_target_: benchmarks.screened_words.Words, every: 40}"
HIDDEN, WEIGHT, BIAS = torch.eye(2, 64), torch.zeros(320, 64), torch.full((320,), -20.0)
BIAS[:3] = torch.tensor([0.0, -0.3, -0.8])  # sparsemax leaves two classes
WEIGHT[1, 1] = 2.0  # and of the second row one


class Clock:
    """A clock that work alone moves."""

    now = 0

    def process_time(self):
        return self.now


@needs_kernel
def test_counts_are_those_of_the_support_and_of_its_targets():
    found = screened_words.counts(HIDDEN, WEIGHT, BIAS, torch.tensor([0, 200]), (2.0, 2.0, 1.0))
    assert (found["tokens"], found["words"]) == (2, 320)
    assert found["nonzero"] == (2 + 2) / 2  # of the second row its word and its target
    assert found["rows"] == pytest.approx(3 / 320)
    assert found["left"] == 2
    assert found["listed"] == 1


@needs_kernel
def test_a_row_is_listed_where_the_product_leaves_few_words():
    """Here it rounds too much to tell which words are near the largest; of the exact logits one is."""
    weight = WEIGHT.clone()
    weight[:200, 0], weight[0, 0] = 997.0, 1000.0
    found = screened_words.counts(HIDDEN[:1], weight, None, torch.tensor([0]), (2.0, 2.0, 1.0))
    assert found["left"] == 1
    assert found["listed"] == 0
    no_word_far_away = screened_words.counts(HIDDEN, torch.zeros(320, 64), None, torch.tensor([0, 1]), (2.0, 2.0, 1.0))
    assert no_word_far_away["left"] == 320


def test_times_are_relative_to_cross_entropy(monkeypatch):
    """By a clock on which cross-entropy takes two seconds, the loss one, and screening four more."""
    clock = Clock()

    def timed(value, forward, backward):
        clock.now += forward
        value.register_hook(lambda grad: setattr(clock, "now", clock.now + backward))
        return value

    def baseline(logits, targets, reduction):
        return timed(cross_entropy(logits, targets, reduction=reduction), 1, 1)

    def loss(hidden, weight, targets, reduction):
        value = cross_entropy(linear(hidden, weight), targets, reduction=reduction)
        return timed(value, 4.5 if _layer_screened.has_bfloat16() else 0.5, 0.5)

    monkeypatch.setattr(screened_words, "time", clock)
    monkeypatch.setattr(screened_words, "cross_entropy", baseline)
    layer = HIDDEN.clone(), WEIGHT.clone(), torch.tensor([0, 1])
    found = screened_words.times(loss, layer, {"reduction": "sum"})
    assert found == {"time": 0.5, "time_screened": 2.5}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The rows of a training that is screened, of the same one that is not, and of the record of that one."""
    folders = []
    for options in ((CALLBACK,), ()):
        folder = tmp_path_factory.mktemp("words")
        succeed(folder / "outputs", "experiment=copy", "activation=entmax", *SIZES, *options)
        folders += [record.parent for record in records(folder)]
    results = tmp_path_factory.mktemp("results")
    (results / "records").mkdir()
    record = load_record(folders[1] / "record.json")
    (results / "records" / "copy.jsonl").write_text(record.to_json() + "\n")
    return pd.DataFrame(screened_words.measured(folders, results))


@needs_kernel
@pytest.mark.medium
def test_a_training_logs_its_words_and_screening_leaves_its_curves(trained):
    assert trained["training"].tolist() == ["screened"] * 2 + ["not screened"] * 2 + ["recorded"] * 2
    assert trained["epoch"].tolist() == [1, 2] * 3
    screened, plain, _ = (rows.reset_index() for _, rows in trained.groupby("training", sort=False))
    assert (screened[["every", "words"]] == [40, 20]).all(axis=None)
    assert plain["words"].isna().all()
    assert (plain["loss"] != screened["loss"]).any()  # other sums: it was screened
    assert plain["loss"].values == pytest.approx(screened["loss"].values, rel=1e-4)  # each step adds to the difference


@needs_kernel
@pytest.mark.medium
def test_the_page_shows_trainings_side_by_side(trained, tmp_path):
    page = screened_words.page(trained)
    assert page.count("\n| 1.5-entmax   | 21     | 2 ") == 2  # in both tables
    screened_words.draw(trained, tmp_path / "screened_words.csv")
    assert "1.5-entmax, listed" in (tmp_path / "screened_words.svg").read_text()
