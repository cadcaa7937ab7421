"""The study of prediction sets: its numbers against slow loops, and its report on made-up networks."""

import numpy as np
import pandas as pd
import pytest
import torch

from studies import prediction_sets as study
from studies.study import load_study
from tests.sharmix.cases import every_case


@pytest.fixture
def settings():
    small = {"splits": 40, "selection_splits": 3, "bootstrap": {"confidence": 0.95, "resamples": 200, "seed": 0}}
    small |= {"coverages": [0.8, 0.9], "least_stratum": 10, "probabilities": ["cifar10"], "experiments": {}}
    return load_study("prediction_sets").settings | small


@pytest.fixture
def data(tmp_path):
    generator = torch.Generator().manual_seed(0)
    p = (2 * torch.randn(500, 6, generator=generator)).softmax(-1)
    folder = tmp_path / "calibration"
    folder.mkdir()
    np.save(folder / "cifar10_test_probabilities.npy", p.numpy())
    np.save(folder / "cifar10_test_labels.npy", torch.multinomial(p, 1, generator=generator).squeeze(-1).numpy())
    return tmp_path


def contenders(data, settings):
    task = study.tasks(settings, data)[0]
    logits, labels = study._examples(task, settings, data)
    network = {"orders": [1.5, 1.5]}
    return logits, labels, study.Contenders(logits, labels, np.arange(100), network, settings, np.random.default_rng(0))


def test_splits_are_what_a_loop_finds(data, settings):
    logits, labels, _ = contenders(data, settings)
    random = np.random.default_rng(0)
    halves = [random.permutation(500) for _ in range(5)]
    found = study._Splits(-logits, labels, 0.9, halves, settings)
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


def test_raps_is_its_formula(data, settings):
    logits, _, found = contenders(data, settings)
    scores = found._cumulative(slice(None), 0.1, 2)
    p = (logits / found.temperature).softmax(-1)
    with every_case() as case:
        for row, k in ((0, 0), (1, 3), (2, 5)):
            rank = 1 + (p[row] > p[row, k]).sum()
            above = p[row][p[row] > p[row, k]].sum()
            expected = above + found.dither[row] * p[row, k] + 0.1 * max(rank - 2, 0)
            with case(row=row, k=k):
                assert scores[row, k].item() == pytest.approx(expected.item())


def test_the_fitted_temperature_has_the_least_log_loss(data, settings):
    logits, labels, found = contenders(data, settings)
    losses = [
        torch.nn.functional.cross_entropy(logits[:100] / (found.temperature * scale), labels[:100])
        for scale in (0.97, 1.0, 1.03)
    ]
    assert losses[1] < min(losses[0], losses[2])


@pytest.mark.slow
def test_the_report_of_made_up_networks(data, settings):
    task = study.tasks(settings, data)[0]
    measured = study.measure(task, settings, data)
    rows = [
        {**task, "network": network, "data_set": name, **row}
        for name in ("digits", "airline")
        for network in settings["networks"]
        for row in measured
    ]
    records = pd.DataFrame(rows)
    own = [
        {**row, "contender": name}
        for row in rows
        if row["contender"] == study.LAC
        for name in (study.OWN, study.LAC_OWN)
    ]
    records = pd.concat([records, pd.DataFrame(own)])
    expected = records[records["metric"] == "expected coverage"]["value"].to_numpy()
    assert records[records["metric"] == "coverage"]["value"].to_numpy() == pytest.approx(expected, abs=0.02)
    report = study.report(records, settings)
    asked = report.tables["What was asked"].set_index(["contender", "against", "metric"])["difference"]
    assert asked[study.OWN, study.LAC, "relative size"] == "+0.0 % [+0.0 %, +0.0 %]"
    assert {finding.verdict for finding in report.findings} <= {"gain", "no gain", "loss"}


def test_without_a_folder_the_error_names_what_to_give(settings):
    task = study.tasks(settings, None)[0]
    with pytest.raises(study.DataError, match="name it by DATA=FOLDER"):
        study.measure(task, settings, None)
