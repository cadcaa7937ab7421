"""The benchmark of classes split over processes: its smallest cell, and its page."""

import sys

import pandas as pd
import pytest

from benchmarks import vocab_parallel


@pytest.mark.slow
def test_the_quick_run_counts_the_messages_of_each_loss(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["vocab_parallel", "--quick", "--folder", str(tmp_path)])
    vocab_parallel.main()
    data = pd.read_csv(tmp_path / "vocab_parallel.csv").set_index(["logits", "contender"])
    messages = data["all_gathers"] + data["all_reduces"]
    for kind in ("flat", "normal", "peaked"):
        assert messages[kind, "cross-entropy, loss_parallel"] == 3
        assert messages[kind, "1.5-entmax, gathered logits"] == 1
        assert (
            messages[kind, "1.5-entmax, shared"] == 1
            if kind != "flat"
            else 2 <= messages[kind, "1.5-entmax, shared"] <= 7
        )
    assert "2 processes" in (tmp_path / "vocab_parallel.md").read_text()
