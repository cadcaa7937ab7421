"""What the callback counts in a training, and the page of what it wrote."""

from types import SimpleNamespace

import pandas as pd
import pytest
import torch

import sharmix
from benchmarks import screened_words
from sharmix._operators import cpu

pytestmark = pytest.mark.skipif(not cpu.kernel, reason="needs the compiled kernel")
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


def test_the_callback_writes_a_row_for_each_epoch_and_leaves_the_loss_as_it_is(tmp_path):
    torch.manual_seed(0)
    file = str(tmp_path / "sharmix_fixed.csv")
    activation, callback = sharmix.SharMiX(q=1.25, r=1.5), screened_words.Words(file, every=2)
    hidden, weight, bias, targets = torch.randn(8, 4), torch.randn(320, 4), torch.zeros(320), torch.arange(8)
    expected = activation.linear_loss(hidden, weight, bias, targets, reduction="sum")
    callback.on_fit_start(None, SimpleNamespace(activation=activation))
    for epoch in range(2):
        for _ in range(2):
            assert activation.linear_loss(hidden, weight, bias, targets, reduction="sum") == expected
        callback.on_train_epoch_end(SimpleNamespace(current_epoch=epoch), None)
    rows = list(screened_words.measured([file]))
    assert [(row["activation"], row["epoch"]) for row in rows] == [("sharmix_fixed", 1), ("sharmix_fixed", 2)]
    assert all(row["ratio"] > 0 for row in rows)
    origin = dict.fromkeys(("processor", "cores", "vectors", "backend", "torch", "commit", "dirty"), "x")
    data = pd.DataFrame([row | origin for row in rows])
    assert "| SharMiX (1.25, 1.5) | 2       |" in screened_words.page(data)
    screened_words.draw(data, tmp_path / "screened_words.csv")
    assert "SharMiX (1.25, 1.5), listed" in (tmp_path / "screened_words.svg").read_text()
