"""What the callback counts in a training, and the page of what it wrote."""

from unittest import mock

import pandas as pd
import pytest
import torch

from benchmarks import screened_words
from sharmix._operators import cpu
from tests.end_to_end.runner import records, succeed

pytestmark = pytest.mark.skipif(not cpu.kernel, reason="needs the compiled kernel")
SIZES = "data.train_size=640", "data.evaluation_size=4", "trainer.max_epochs=2"
HIDDEN, WEIGHT, BIAS = torch.eye(2, 64), torch.zeros(320, 64), torch.full((320,), -20.0)
BIAS[:3] = torch.tensor([0.0, -0.3, -0.8])  # sparsemax leaves two classes
WEIGHT[1, 1] = 2.0  # and of the second row one


def test_counts_are_those_of_the_support_and_of_its_targets():
    found = screened_words.counts(HIDDEN, WEIGHT, BIAS, torch.tensor([0, 200]), (2.0, 2.0, 1.0))
    assert (found["tokens"], found["words"]) == (2, 320)
    assert found["nonzero"] == (2 + 2) / 2  # of the second row its word and its target
    assert found["rows"] == pytest.approx(3 / 320)
    assert found["left"] >= 2
    assert found["listed"] == 1


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The rows of a training that is not screened, and of one that is."""
    rows = []
    for screened in ("false", "true"):
        folder = tmp_path_factory.mktemp("words")
        callback = f"{{_target_: benchmarks.screened_words.Words, every: 2, screened: {screened}}}"
        try:
            succeed(folder / "outputs", "experiment=copy", "activation=entmax", *SIZES, f"+callbacks.words={callback}")
        finally:
            mock.patch.stopall()
        (record,) = records(folder)
        rows += screened_words.measured([record.parent])
    return pd.DataFrame(rows)


@pytest.mark.medium
def test_a_training_logs_its_words_and_screening_leaves_its_curves(trained):
    assert trained["screened"].tolist() == [0, 0, 1, 1]
    assert trained["epoch"].tolist() == [1, 2, 1, 2]
    assert (trained[["every", "words"]] == [2, 20]).all(axis=None)
    assert (trained["ratio"] > 0).all()
    plain, screened = (trained[trained["screened"] == which].reset_index() for which in (0, 1))
    assert (plain["loss"] != screened["loss"]).any()  # other sums: it was screened
    assert plain["loss"].values == pytest.approx(screened["loss"].values, rel=1e-5)
    assert plain["bleu"].values == pytest.approx(screened["bleu"].values)


@pytest.mark.medium
def test_the_page_shows_trainings_side_by_side(trained, tmp_path):
    page = screened_words.page(trained)
    assert page.count("\n| 1.5-entmax   | 2 ") == 2  # in both tables
    screened_words.draw(trained, tmp_path / "screened_words.csv")
    assert "1.5-entmax, listed" in (tmp_path / "screened_words.svg").read_text()
