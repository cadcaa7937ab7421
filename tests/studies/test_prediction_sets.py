"""The study of prediction sets: its numbers against slow loops."""

import numpy as np
import pandas as pd
import pytest
import torch

import sharmix
from studies import prediction_sets as study
from studies.conformal_scores import LAC, LAC_OWN, OWN, ConformalSplits, Contenders
from studies.logits import LabelledLogits
from studies.study import load_study

STUDY = load_study("prediction_sets")


@pytest.fixture
def settings():
    small = {"splits": 40, "selection_splits": 3}
    small |= {"coverages": [0.8, 0.9], "least_stratum": 10, "probability_sets": ["own"], "networks": {}}
    return STUDY.settings | small


@pytest.fixture
def examples(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    p = (2 * torch.randn(500, 6, generator=generator, dtype=torch.float64)).softmax(-1)
    labels = torch.multinomial(p, 1, generator=generator).squeeze(-1)
    monkeypatch.setattr(study, "public_probabilities", lambda name, data: (p, labels))
    return LabelledLogits(p.log(), labels, sharmix.Entmax(1.5))


@pytest.fixture
def contenders(examples, settings):
    return Contenders(examples, np.arange(100), settings, np.random.default_rng(0))


@pytest.mark.parametrize("decimals", [15, 1], ids=["all differ", "many ties"])
def test_splits_are_what_a_loop_finds(examples, settings, decimals):
    logits, labels = examples.logits.round(decimals=decimals), examples.labels
    random = np.random.default_rng(0)
    halves = np.stack([random.permutation(500) for _ in range(5)])
    found = ConformalSplits(-logits, labels, 0.9, halves, settings)
    for split, half in enumerate(halves):
        scores = sorted(-logits[i, labels[i]].item() for i in half[:250])
        threshold = scores[226 - 1]  # ⌈251 · 0.9⌉
        sets = {i: [k for k in range(6) if -logits[i, k] <= threshold] for i in half[250:]}
        covered = {i: labels[i] in chosen for i, chosen in sets.items()}
        strata = [(0, 1), (2, 3), (4, 10)]
        parts = [[covered[i] for i, one in sets.items() if low <= len(one) <= high] for low, high in strata]
        violation = max(abs(np.mean(part) - 0.9) for part in parts if len(part) >= 10)
        assert found.covered[split] == sum(covered.values())
        assert found.size[split] == pytest.approx(np.mean([len(one) for one in sets.values()]))
        assert found.singletons[split] == pytest.approx(np.mean([len(one) == 1 for one in sets.values()]))
        assert found.violation[split] == pytest.approx(violation)


def test_sets_hold_all_classes_where_too_few_examples_calibrate(examples, settings):
    found = ConformalSplits(-examples.logits, examples.labels, 0.999, np.arange(500)[None], settings)
    assert (found.size, found.covered) == (6, 250)


def test_raps_is_its_formula(examples, contenders):
    scores = contenders._cumulative(slice(None), 0.1, 2)
    p = (examples.logits / contenders.temperature).softmax(-1)
    for row, k in ((0, 0), (1, 3), (2, 5)):
        rank = 1 + (p[row] > p[row, k]).sum()
        above = p[row][p[row] > p[row, k]].sum()
        expected = above + contenders.dither[row] * p[row, k] + 0.1 * max(rank - 2, 0)
        assert scores[row, k].item() == pytest.approx(expected.item()), (row, k)


def test_a_network_is_scored_by_its_own_map(examples, contenders):
    scores = {name: found for name, found, _ in contenders.all(0.9)}
    assert scores[LAC_OWN].equal(-sharmix.entmax(examples.logits, 1.5))
    for temperature in (0.5, 1.0, 2.0):
        support = sharmix.entmax(examples.logits / temperature, 1.5) > 0
        assert (scores[OWN] < temperature).equal(support)


def test_the_fitted_temperature_has_the_least_log_loss(examples, contenders):
    logits, labels, _ = examples
    losses = [
        torch.nn.functional.cross_entropy(logits[:100] / (contenders.temperature * scale), labels[:100])
        for scale in (0.97, 1.0, 1.03)
    ]
    assert losses[1] < min(losses[0], losses[2])


def test_the_coverage_of_every_score_is_the_expected_one(examples, settings):
    (task,) = study.tasks(settings, None)
    records = pd.DataFrame(study.measure(task, settings, None))
    values = records.pivot(index=["contender", "level"], columns="metric", values="value")
    assert values["coverage"].tolist() == pytest.approx(values["expected coverage"].tolist(), abs=0.02)
    assert (values.loc[LAC, "size over LAC, low"] == 0).all()


def test_a_task_is_every_network_with_every_seed():
    tasks = study.tasks(STUDY.settings, None)
    assert {"data_set": "airline", "network": "SharMiX (1.5, 1.75)", "seed": 9998} in tasks
    assert {"data_set": "20news", "network": "public", "seed": 0} in tasks
