"""What the benchmark of a language model's output layer measures, of a small layer, and its page."""

import pandas as pd
import pytest
import torch

from benchmarks import language_head
from benchmarks.harness import load_settings
from sharmix._operators import cpu

SMALL = {"tokens": 300, "rounds": 1, "tuning": {"batches": 2, "tokens": 50, "steps": 3, "lr": 1e-3}}
ORIGIN = dict.fromkeys(("processor", "cores", "vectors", "backend", "torch", "commit", "dirty"), "x")


def small_model(tokens):
    generator = torch.Generator().manual_seed(0)
    weight, hidden = torch.randn(5000, 16, generator=generator), torch.randn(tokens, 16, generator=generator)
    return weight, hidden, (hidden @ weight.T).argmax(1)


@pytest.mark.medium
@pytest.mark.skipif(not cpu.kernel, reason="needs the compiled kernel")
def test_a_head_is_measured_before_and_after_tuning_and_has_a_page(monkeypatch):
    monkeypatch.setattr(language_head, "language_model", small_model)
    monkeypatch.setattr(language_head, "in_fresh_process", lambda function, *arguments: function(*arguments))  # faster
    settings = load_settings("language_head") | SMALL
    data = pd.DataFrame(language_head.measure(settings))
    assert data["head"].value_counts().tolist() == [6, 6]
    assert data["loss_error"].max() < 1e-6
    assert 0 < data["gradient_error"].max() < 5e-6  # other sums: it was screened
    page = language_head.page(data.assign(**ORIGIN), settings)
    assert "| cross-entropy                  | 1.00 " in page
