"""The study of label distributions: its distances by hand, and its choices on distributions that are made up."""

import hashlib
import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.io import savemat
from sklearn.model_selection import KFold

import sharmix
from studies import soft_labels
from studies.hidden_layer import HiddenLayer
from studies.study import load_study

STUDY = load_study("soft_labels")


def test_the_distances_of_two_distributions():
    found = soft_labels.distribution_distances(np.array([[0.5, 0.3, 0.2, 0.0]]), np.array([[0.2, 0.8, 0.0, 0.0]]))
    ratios, epsilon = (0.3 / 0.7, 0.5 / 1.1, 1.0, 0.0), np.finfo(np.float64).eps
    assert found == pytest.approx(
        {
            "chebyshev": 0.5,
            "clark": math.sqrt(sum(ratio**2 for ratio in ratios)),
            "canberra": sum(ratios),
            "kl": 0.5 * math.log(0.5 / 0.2) + 0.3 * math.log(0.3 / 0.8) + 0.2 * math.log(0.2 / epsilon),
            "cosine": 0.34 / math.sqrt(0.38 * 0.68),
            "intersection": 0.2 + 0.3,
            "support_f1": 2 * 2 / (2 + 3),
        }
    )


def test_a_hidden_layer_learns_what_a_linear_model_cannot():
    x = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
    labels = (x.prod(1) > 0).astype(int)
    options = {"alpha": 0.01, "seed": 0, "max_iter": 60, "tol": 1e-4}
    network = HiddenLayer(sharmix.SharMiX(1.25, 1.5), 16, **options).fit(x, np.eye(2)[labels])
    p = network.predict_proba(x)
    np.testing.assert_allclose(p.sum(1), 1, atol=1e-6)
    assert (p.argmax(1) == labels).mean() > 0.95


@pytest.fixture
def measured(tmp_path):
    """A function that writes a data set of features and distributions, and gives what the study measures of a fold."""

    def measure(features, targets, fold=0):
        savemat(tmp_path / "own.mat", {"features": features, "labels": targets})
        digest = hashlib.sha256((tmp_path / "own.mat").read_bytes()).hexdigest()
        files = {"own": {"file": "own.mat", "url": "https://example.org", "sha256": digest}}
        settings = STUDY.settings | {
            "data_sets": files,
            "folds": 3,
            "models": {"linear": {"hidden_units": 0, "penalties": [1e-3, 1e-1]}},
        }
        settings["contenders"] = {name: few[:2] for name, few in STUDY.settings["contenders"].items()}
        task = soft_labels.tasks(settings, tmp_path)[fold]
        return pd.DataFrame(soft_labels.measure(task, settings, tmp_path))

    return measure


@pytest.mark.medium
def test_a_sparse_map_learns_sparse_distributions(measured):
    """The distributions are sparsemax of a linear function: softmax cannot have their zeros."""
    x = np.random.default_rng(0).normal(size=(150, 4))
    z = x @ np.random.default_rng(1).normal(size=(4, 5))
    y = sharmix.sparsemax(torch.from_numpy(z)).numpy()
    table = measured(x, y).pivot(index="contender", columns="metric", values="value")
    assert table.loc["softmax", "zeros"] == 0
    assert table.loc["entmax", "support_f1"] > table.loc["softmax", "support_f1"] + 0.1
    assert table.loc["entmax", "intersection"] > 0.9
    assert table.loc["softmax, threshold", "support_f1"] > table.loc["softmax", "support_f1"]


@pytest.mark.medium
def test_nothing_is_chosen_on_the_tested_fold(measured):
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(90, 4)), generator.dirichlet(np.full(3, 0.5), 90)
    before = measured(x, y, fold=1)
    _, test = list(KFold(3, shuffle=True, random_state=STUDY.settings["seed"]).split(x))[1]
    y[test] = y[test][:, ::-1]
    after = measured(x, y, fold=1)
    chosen = before["metric"].isin(["penalty", "alpha", "q", "r", "zeros"])
    assert before[chosen].equals(after[chosen])
    assert not before[~chosen].equals(after[~chosen])
