"""The study of boosted trees: its data sets, objective and scores, and that everything is chosen on validation."""

import lightgbm
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.metrics import log_loss

from experiments.errors import ConfigurationError
from studies import boosting
from studies.boosting_objective import Objective
from studies.packaged_tables import chosen_tables
from studies.study import load_study


@pytest.fixture
def settings(tmp_path):
    """The settings of the study, with small tables of our own and a small search in place of its own."""
    keel = tmp_path / "keel"
    keel.mkdir()
    for name, loaded in (("iris", load_iris()), ("wine", load_wine())):
        names = np.array(["a", "b", "c"])[loaded.target]
        names[::7] = "b"  # or a Brier score would be 0, and no change a share of it
        pd.DataFrame(loaded.data).assign(y=names).to_csv(keel / f"{name}.dat", header=False, index=False)
    (keel / "binary.dat").write_text("1, x, yes\n2, y, no\n" * 60)
    kinds, noise = ["x", None, "y"] * 50, np.random.default_rng(0).integers(1, 4, 147)
    table = pd.DataFrame({"kind": kinds, "dropped": 0, "size": range(150), "y": [3, 1, 2, *noise]})
    table.to_csv(tmp_path / "file.csv", sep=";", index=False)
    own = load_study("boosting").settings
    described = {"file": "file.csv", "target": "y", "left_out": ["dropped"], "separator": ";"}
    own["data_sets"] |= {"folder": str(tmp_path), "keel": "keel", "left_out": ["wine"], "files": {"file": described}}
    return own | {"splits": 2, "rounds": 15, "learning_rates": [0.2], "most_rows": 500}


def test_tables_are_those_of_the_allowed_sizes_with_categories_numbered(settings):
    tables = chosen_tables(settings["data_sets"])
    assert list(tables) == ["iris", "file", "digits"]
    np.testing.assert_array_equal(tables["iris"].labels[1:7], [0] * 6)
    np.testing.assert_array_equal(tables["iris"].features, load_iris().data)
    np.testing.assert_array_equal(tables["file"].features[:3], [[0, 0], [np.nan, 1], [1, 2]])
    np.testing.assert_array_equal(tables["file"].labels[:3], [2, 0, 1])
    assert tables["digits"].sizes == {"rows": 1797, "features": 64, "classes": 10, "least_of_a_class": 174}
    assert len(boosting.tasks(settings, None)) == 6
    settings["data_sets"]["keel"] = "missing"
    with pytest.raises(ConfigurationError, match="make study-boosting"):
        chosen_tables(settings["data_sets"])


def test_the_parts_of_a_split_are_disjoint_and_hold_every_class(settings):
    labels = load_digits().target
    splits = [boosting.rows_of_parts(labels, split, settings) for split in (0, 0, 1)]
    for parts in splits:
        assert {name: len(part) for name, part in parts.items()} == {"train": 300, "validation": 100, "test": 100}
        assert len(np.unique(np.concatenate([*parts.values()]))) == 500
        assert all(len(np.unique(labels[part])) == 10 for part in parts.values())
    np.testing.assert_array_equal(splits[0]["test"], splits[1]["test"])
    assert set(splits[0]["test"]) != set(splits[2]["test"])


ACTIVATIONS = [
    {"activation": "softmax"},
    {"activation": "entmax", "alpha": 1.5},
    {"activation": "sharmix_fixed", "q": 1.25, "r": 1.5, "temperature": 0.5},
    {"activation": "sharmix_fixed", "q": 1 + 1e-9, "r": 1.0},
    {"activation": "sharmix_fixed", "q": 2.0, "r": 3.0},
    {"activation": "sharmix_fixed", "q": 1.75, "r": 1.25},
]


def objective_and_data(raw, labels, **objective):
    data = lightgbm.Dataset(raw, labels, params={"verbosity": -1}).construct()
    return Objective(**objective), data


@pytest.mark.parametrize("parameters", ACTIVATIONS)
def test_gradient_and_hessian_are_the_slopes_of_the_loss_and_of_the_map(parameters):
    step, labels = 1e-5, np.arange(50) % 4
    raw = 2 * np.random.default_rng(0).standard_normal((50, 4))
    objective, data = objective_and_data(raw, labels, **parameters, hessian_floor=1e-9)
    gradient, hessian = objective(raw, data)
    activation, z, y = objective.activation, torch.from_numpy(raw), torch.from_numpy(labels)
    for k in range(4):
        up, down = z.clone(), z.clone()
        up[:, k] += step
        down[:, k] -= step
        losses = [activation.loss(at, y, reduction="none") for at in (up, down)]
        np.testing.assert_allclose(gradient[:, k], (losses[0] - losses[1]) / (2 * step), atol=1e-6)
        slopes = (activation(up) - activation(down))[:, k] / (2 * step)
        np.testing.assert_allclose(hessian[:, k], slopes, rtol=1e-4, atol=1e-6)


def test_the_floor_stands_where_a_class_is_outside_the_support():
    raw, labels = np.array([[9.0, 0.0, 0.0], [0.3, 0.0, -0.2]]), [1, 1]
    objective, data = objective_and_data(raw, labels, activation="sparsemax", hessian_floor=0.125)
    gradient, hessian = objective(raw, data)
    np.testing.assert_array_equal(gradient[0], [1, -1, 0])
    np.testing.assert_array_equal(hessian[0], [0.125] * 3)
    np.testing.assert_allclose(hessian[1], [2 / 3] * 3, rtol=1e-6)


def test_softmax_grows_the_trees_of_lightgbm_s_own_objective():
    """At a learning rate divided by its factor of the Hessian, classes/(classes − 1), from a start of 0."""
    generator = np.random.default_rng(0)
    labels = generator.integers(4, size=240)
    features = labels[:, None] * [1.0, -0.5, 0.0] + 0.7 * generator.standard_normal((240, 3))
    settings = load_study("boosting").settings["lightgbm"] | {"num_class": 4, "min_sum_hessian_in_leaf": 0.0}
    theirs = settings | {"objective": "multiclass", "learning_rate": 0.1, "boost_from_average": False}
    objective = Objective("softmax", hessian_floor=1e-15)
    ours = settings | {"objective": objective, "learning_rate": 0.1 * 3 / 4}
    models = [lightgbm.train(each, lightgbm.Dataset(features, labels), 8) for each in (theirs, ours)]
    found = objective.probabilities(models[1].predict(features, raw_score=True))
    np.testing.assert_allclose(found, models[0].predict(features), atol=1e-6)


def test_scores_are_those_of_scikit_learn():
    generator = np.random.default_rng(0)
    p, y = generator.dirichlet([0.5] * 4, 50), generator.integers(4, size=50)
    p[0], y[0] = [0, 0.5, 0.5, 0], 0
    found = boosting.scores(torch.from_numpy(p), torch.from_numpy(y), 1e-7)
    clipped = np.where(p > 1e-7, p, 1e-7)[np.arange(50), y]
    assert found["brier"].item() == pytest.approx(np.square(p - np.eye(4)[y]).sum(1).mean())
    assert found["log_loss"].item() == pytest.approx(-np.log(clipped).mean())
    assert log_loss(y[1:], p[1:]) == pytest.approx((found["log_loss"].item() * 50 + np.log(1e-7)) / 49)
    assert found["outside"].item() == 1 / 50
    assert found["accuracy"].item() == (p.argmax(1) == y).mean()
    assert found["support"].item() == (p > 0).sum(1).mean()


@pytest.mark.medium
def test_every_contender_is_measured(settings):
    tasks = [task for task in boosting.tasks(settings, None) if task["data_set"] != "digits"]
    records = pd.DataFrame([{**task, **row} for task in tasks for row in boosting.measure(task, settings, None)])
    assert set(records["contender"]) == {
        name + end for name in [*settings["contenders"], *settings["chosen"]] for end in ("", " + T")
    }
    values = records[records["metric"] == "outside"].set_index("contender")["value"]
    assert (values["LightGBM"] == 0).all()
    temperatures = records[records["metric"] == "temperature"].set_index("contender")["value"]
    assert (temperatures["softmax"] == 1).all()
    assert temperatures["softmax + T"].between(0.1, 10).all()
    brier = records[records["metric"] == "brier"].groupby("contender")["value"].mean()
    assert brier["SharMiX + T"] < 0.67  # of equal probabilities


def test_nothing_is_chosen_on_the_test_part(settings, monkeypatch):
    task = {"data_set": "iris", "split": 0}

    def temperatures():
        rows = boosting.measure(task, settings, None)
        return [row["value"] for row in rows if row["metric"] == "temperature"]

    before, whole = temperatures(), boosting.rows_of_parts

    def without_test_labels(labels, split, settings):
        rows = whole(labels, split, settings)
        labels[rows["test"]] = 0
        return rows

    monkeypatch.setattr(boosting, "rows_of_parts", without_test_labels)
    assert temperatures() == before
