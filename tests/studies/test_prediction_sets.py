"""The study of prediction sets: its numbers against slow loops."""

import numpy as np
import pandas as pd
import pytest
import torch

import sharmix
from studies import prediction_sets as study
from studies.conformal_scores import LAC, LAC_OWN, OWN, ConformalSplits, candidates, fitted_temperature, raps_scores
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
    found = LabelledLogits(p.log(), labels, sharmix.Entmax(alpha=1.5))
    monkeypatch.setattr(study, "logits_of", lambda source, seed, settings, data: found)
    return found


@pytest.mark.parametrize("decimals", [15, 1], ids=["all differ", "many ties"])
def test_splits_are_what_a_loop_finds(examples, settings, decimals):
    logits, labels = examples.logits.round(decimals=decimals), examples.labels
    random = np.random.default_rng(0)
    halves = np.stack([random.permutation(500) for _ in range(5)])
    found = ConformalSplits(-logits, labels, 0.9, halves)
    violations = found.violations(settings["strata"], settings["least_stratum"])
    singletons = []
    for split, half in enumerate(halves):
        scores = sorted(-logits[i, labels[i]].item() for i in half[:250])
        threshold = scores[226 - 1]  # ⌈251 · 0.9⌉
        sets = {i: [k for k in range(6) if -logits[i, k] <= threshold] for i in half[250:]}
        covered = {i: labels[i] in chosen for i, chosen in sets.items()}
        strata = [(0, 1), (2, 3), (4, 10)]
        parts = [[covered[i] for i, one in sets.items() if low <= len(one) <= high] for low, high in strata]
        violation = max(abs(np.mean(part) - 0.9) for part in parts if len(part) >= 10)
        assert found.covered[split].tolist() == [*covered.values()]
        assert found.sizes[split].tolist() == [len(one) for one in sets.values()]
        assert violations[split] == pytest.approx(violation)
        singletons.append(np.mean([len(one) == 1 for one in sets.values()]))
    assert found.means(settings)["singletons"] == pytest.approx(np.mean(singletons))


def test_sets_hold_all_classes_where_too_few_examples_calibrate(examples):
    found = ConformalSplits(-examples.logits, examples.labels, 0.999, np.arange(500)[None])
    assert (found.sizes == 6).all()
    assert found.covered.all()


def test_the_rank_is_that_of_the_coverage_as_written(examples):
    """100 · 0.07 is 7.000000000000001 in floating point, whose ceiling is 8."""
    assert ConformalSplits(-examples.logits[:198], examples.labels[:198], 0.07, np.arange(198)[None]).rank == 7


def test_raps_is_its_formula(examples):
    p, dither = examples.logits.softmax(-1), torch.rand(500, 1, dtype=torch.float64)
    scores = raps_scores(p, dither, penalty=0.1, rank=2)
    for row, k in ((0, 0), (1, 3), (2, 5)):
        rank = 1 + (p[row] > p[row, k]).sum()
        above = p[row][p[row] > p[row, k]].sum()
        expected = above + dither[row] * p[row, k] + 0.1 * max(rank - 2, 0)
        assert scores[row, k].item() == pytest.approx(expected.item()), (row, k)


def test_a_network_is_scored_by_its_own_map(examples, settings):
    contenders, rows = candidates(examples, 1.0, torch.zeros(500, 1), settings), np.arange(100, 200)
    [(_, lac)], [(_, support)] = contenders[LAC_OWN], contenders[OWN]
    assert lac(rows).equal(-sharmix.entmax(examples.logits[rows], alpha=1.5))
    for temperature in (0.5, 1.0, 2.0):
        expected = sharmix.entmax(examples.logits[rows] / temperature, alpha=1.5) > 0
        assert (support(rows) < temperature).equal(expected)


@pytest.mark.parametrize("factor", [3, 1 / 3])
def test_the_fitted_temperature_has_the_least_log_loss(examples, factor):
    logits, labels = factor * examples.logits, examples.labels
    found = fitted_temperature(logits, labels)
    losses = [torch.nn.functional.cross_entropy(logits / (found * scale), labels) for scale in (0.97, 1.0, 1.03)]
    assert losses[1] < min(losses[0], losses[2])


def test_the_coverage_of_every_score_is_the_expected_one(examples, settings):
    (task,) = study.tasks(settings, None)
    records = pd.DataFrame(study.measure(task, settings, None))
    values = records.pivot(index=["contender", "level"], columns="metric", values="value")
    assert values["coverage"].tolist() == pytest.approx(values["expected coverage"].tolist(), abs=0.02)
    assert (values.loc[LAC, "size over LAC, low"] == 0).all()
