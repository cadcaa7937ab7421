"""What `make attention` measures, and the figure of its CSV."""

import shutil

import pandas as pd
import pytest

from benchmarks import attention
from benchmarks.harness import load_settings
from experiments.identity import ROOT

RECORDED = ROOT / "results" / "benchmarks" / "attention.csv"


@pytest.mark.medium
def test_the_figure_is_drawn_beside_the_numbers(tmp_path):
    shutil.copy(RECORDED, tmp_path)
    attention.draw(pd.read_csv(RECORDED), tmp_path / "attention.csv")
    assert "1.5-entmax, all scores in memory" in (tmp_path / "attention.svg").read_text(encoding="utf-8")


def test_each_contender_is_measured_in_each_case_but_all_scores_only_where_they_fit(monkeypatch):
    monkeypatch.setattr(attention, "in_fresh_process", lambda function, *given: function(*given))
    monkeypatch.setattr(attention, "forget_peak_memory", lambda: None)
    cells = [{"tokens": 8, "calls": 2}, {"tokens": 16, "calls": 1, "regimes": ["sparse"]}]
    found = pd.DataFrame(attention.measure(load_settings("attention") | {"cells": cells, "whole_up_to": 8, "heads": 1}))
    counts = found.groupby(["tokens", "regime"]).size().to_dict()
    assert counts == {(8, "sparse"): 4, (8, "dense"): 4, (16, "sparse"): 3}
    assert (found["seconds"] > 0).all()
    assert (found[found["contender"] == attention.SOFTMAX]["ratio"] == 1).all()
