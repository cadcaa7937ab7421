"""The benchmark of classes split over processes: its smallest cell, and what it computes from it."""

import sys

import pandas as pd
import pytest

from benchmarks import vocab_parallel
from benchmarks.harness import load_settings
from experiments.identity import ROOT


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
    assert "8 devices" in (tmp_path / "vocab_parallel.md").read_text()


def test_the_recorded_tables_are_rebuilt_to_the_letter():
    results = ROOT / "results" / "benchmarks"
    page = vocab_parallel.page(pd.read_csv(results / "vocab_parallel.csv"), load_settings("vocab_parallel"))
    assert page == (results / "vocab_parallel.md").read_text()


def test_a_link_takes_its_latency_for_each_hop_and_its_bandwidth_for_the_bytes():
    row = {"contender": "a", "logits": "b", "classes": 10, "processes": 2, "rows": 5}
    row |= {"all_gathers": 1, "all_reduces": 1, "all_gather_bytes": 1000, "all_reduce_bytes": 400}
    links = {"one": {"microseconds": 1, "gigabytes_a_second": 0.001}}
    settings = {"computed": {"processes": 4, "classes": 20, "rows": [10], "links": links}}
    (line,) = vocab_parallel.computed(pd.DataFrame([row]), settings).to_dict("records")
    assert line == {
        "rows": "10",
        "logits": "b",
        "loss": "a",
        "one": f"{3 * 1 + 6 * 1 + 3 * 2000 + 2 * 3 / 4 * 800:,.0f}",
    }
