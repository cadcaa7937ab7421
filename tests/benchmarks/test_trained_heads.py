"""What `make trained_heads` measures of the heads of a finished run."""

import torch

from benchmarks import trained_heads
from benchmarks.harness import load_settings
from tests.experiments.building import copies, translator

WEIGHTS = torch.tensor([[1.0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0]])  # [queries, keys]


def shares(allowed):
    """Of a head whose scores are `WEIGHTS`, which are the weights, too; in blocks of two queries."""
    query = 2 * torch.eye(4)[None, None]
    given = query, WEIGHTS.T[None, None], query, torch.tensor(allowed)[None, None, None]
    return [share.item() for share in trained_heads.shares(torch.relu, given, 2)]


def test_shares_of_keys_for_a_query_and_for_a_block():
    assert shares([True] * 4) == [5 / 16, 3 / 8]


def test_padding_is_neither_a_query_nor_a_key():
    of_query, of_block = shares([True, True, True, False])
    assert of_query == torch.tensor(3 / 9)
    assert of_block == torch.tensor(2 / 6)


def test_each_layer_of_a_run_is_measured_on_sentences_and_on_a_text(monkeypatch):
    data = copies()
    monkeypatch.setattr(trained_heads, "load_run", lambda folder: (translator(data).eval(), data))
    settings = load_settings("trained_heads") | {"sentences": 4, "tokens": 40, "rows": 8, "calls": 1}
    sentences, text = trained_heads.measure(["outputs/copy/softmax/seed-0"], settings)
    for row in (sentences, text):
        assert (row["experiment"], row["attention"], row["layer"]) == ("copy", "Softmax", 1)
        assert row["lowest_query"] == row["lowest_block"] == 1
    assert "ratio" not in sentences
    assert text["ratio"] > 0
