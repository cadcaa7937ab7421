"""The study of labels by people, on probabilities and labels that are made up, and the best threshold of scores."""

import hashlib

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import sharmix
from studies import human_labels
from studies.class_sets import best_threshold, mean_f1
from studies.logits import LabelledLogits
from studies.study import load_study

STUDY = load_study("human_labels")
SETTINGS = STUDY.settings | {
    "parts": 4,
    "people": {"anybody": 0.0, "a tenth": 0.1},
    "q": [1.5, 2.0],
    "r_above_least": [0.5],
    "temperatures": [0.5, 2.0, 3],
}


@pytest.fixture
def people(tmp_path, monkeypatch):
    """A function that writes the shares of people, and gives what the study measures of part 1."""
    logits = 2 * torch.randn(80, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = LabelledLogits(logits, logits.argmax(-1), sharmix.Softmax())
    monkeypatch.setattr(human_labels, "public_logits", lambda name, data: found)

    def measured(shares):
        np.save(tmp_path / "people.npy", shares)
        digest = hashlib.sha256((tmp_path / "people.npy").read_bytes()).hexdigest()
        file = {"file": "people.npy", "url": "https://example.org", "sha256": digest}
        return pd.DataFrame(human_labels.measure({"part": 1}, SETTINGS | {"labels_by_people": file}, tmp_path))

    measured.logits = logits
    return measured


def test_supports_are_found_where_people_answer_by_a_support(people):
    """The true sets are supports at (1.5, 1.5 + 1/6) and a temperature, which the study has to find again."""
    q, r = 1.5, 2 - 1 / 1.5 + 0.5
    shares = sharmix.sharmix(people.logits, q, r, temperature=2.0).numpy()
    table = people(shares).pivot(index=["people", "contender"], columns="metric", values="value")
    found = table.loc["anybody", "sharmix"]
    assert (found["f1"], found["q"], found["r"]) == pytest.approx((1.0, q, r))
    assert found["threshold"] == pytest.approx(-2.0, rel=0.1)
    assert found["size"] == pytest.approx((shares > 0).sum(-1).mean(), rel=0.2)
    assert set(table.loc["a tenth"].index) == {
        *STUDY.shown["opponents"],
        "margin",
        "top-k",
        "cumulative mass",
        "entmax",
        "sharmix",
    }


def test_nothing_is_chosen_on_the_tested_part(people):
    shares = np.random.default_rng(0).dirichlet(np.full(5, 0.3), 80) * (np.random.default_rng(1).random((80, 5)) < 0.7)
    shares[:, 0] += 0.2
    before = people(shares)
    parts = human_labels.KFold(SETTINGS["parts"], shuffle=True, random_state=SETTINGS["parts_seed"])
    _, tested = list(parts.split(shares))[1]
    shares[tested] = shares[tested][:, ::-1]
    after = people(shares)
    scored = before["metric"] == "f1"
    assert before[~scored].equals(after[~scored])
    assert not before[scored].equals(after[scored])


@st.composite
def scored_sets(draw):
    """Scores with ties, and true sets that are not empty, of a few examples."""
    shape = draw(st.tuples(st.integers(1, 6), st.integers(2, 5)))
    scores = draw(arrays(np.float64, shape, elements=st.integers(-3, 3)))
    true = draw(arrays(np.bool_, shape))
    true[:, draw(st.integers(0, shape[1] - 1))] = True
    return scores, true


@pytest.mark.medium
@given(scored_sets())
def test_no_threshold_is_better_than_the_best(case):
    scores, true = case
    threshold, f1 = best_threshold(scores, true)
    assert f1 == pytest.approx(mean_f1(scores >= threshold, true))
    assert f1 == pytest.approx(max(mean_f1(scores >= other, true) for other in np.unique(scores)))
