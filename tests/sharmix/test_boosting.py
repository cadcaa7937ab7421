"""Objective and metrics of boosted trees, against finite differences and the packages' own objectives and doors."""

import doctest
import importlib.util
import pickle
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

import sharmix
from tests.sharmix.cases import every_case

np = pytest.importorskip("numpy")
lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")

from sklearn.linear_model import LogisticRegression  # noqa: E402

from sharmix import boosting  # noqa: E402
from sharmix.integrations.boosting import LightGBMMetric, Objective, XGBoostMetric  # noqa: E402

ACTIVATIONS = {
    "softmax": {},
    "sparsemax": {},
    "entmax": {"alpha": 1.5},
    "normmax": {"alpha": 1.5},
    "sharmix_fixed": {"q": 1.25, "r": 1.5, "temperature": 0.5},
    "alpha_relu": {"tau": 0.1},  # which has no closed form here
}
ORDERS = [(1.0, 1.0), (1 + 1e-9, 1.0), (1.0, 2.0), (1.25, 1.25), (1.5, 2.0), (2.0, 3.0), (3.0, 2.5), (1.75, 1.25)]
OBJECTIVES = [*ACTIVATIONS.items(), *(("sharmix_fixed", {"q": q, "r": r}) for q, r in ORDERS)]
SMALL = {"num_threads": 1, "verbosity": -1, "min_data_in_leaf": 5, "num_leaves": 7, "metric": "none"}


def scores(rows, classes, dtype="float64", order="C", seed=0):
    drawn = 2 * np.random.default_rng(seed).standard_normal((rows, classes))
    return np.array(drawn, dtype=dtype, order=order)


def problem(rows=240, classes=3, seed=0):
    """Features and labels that overlap, so that more rounds soon fit the noise."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(classes, size=rows)
    return labels[:, None] * [1.0, -0.5, 0.0] + 0.7 * generator.standard_normal((rows, 3)), labels


def test_gradient_and_hessian_are_the_slopes_of_the_loss_and_of_the_map():
    step = 1e-5
    raw, labels = scores(50, 4), np.arange(50) % 4
    z, y = torch.from_numpy(raw), torch.from_numpy(labels)
    with every_case() as case:
        for name, parameters in OBJECTIVES:
            with case(name=name, **parameters):
                gradient, hessian = Objective(name, hessian_floor=1e-9, **parameters)(labels, raw)
                act = sharmix.build_activation(name, **parameters)
                slopes, curvatures = torch.empty(2, *z.shape, dtype=z.dtype)
                for k in range(4):
                    up, down = z.clone(), z.clone()
                    up[:, k] += step
                    down[:, k] -= step
                    losses = [act.loss(at, y, reduction="none") for at in (up, down)]
                    slopes[:, k] = (losses[0] - losses[1]) / (2 * step)
                    curvatures[:, k] = (act(up) - act(down))[:, k] / (2 * step)
                np.testing.assert_allclose(gradient, slopes, atol=1e-6)
                np.testing.assert_allclose(hessian, curvatures, rtol=1e-4, atol=1e-6)


def test_every_layout_and_dtype_gives_the_same_in_the_layout_given():
    labels = np.arange(20) % 4
    objective = Objective()
    expected = objective(labels, scores(20, 4))
    with every_case() as case:
        for dtype in ("float32", "float64"):
            for order in "CF":
                with case(dtype=dtype, order=order):
                    raw = scores(20, 4, dtype, order)
                    for array, same in zip(objective(labels, raw), expected, strict=True):
                        assert array.dtype == np.float32
                        assert array.flags[f"{order}_CONTIGUOUS"]
                        assert np.shares_memory(array, array.ravel(order=order))  # as LightGBM reads it
                        np.testing.assert_allclose(array, same, rtol=1e-4, atol=1e-6)
                    probabilities = objective.probabilities(raw)
                    assert probabilities.dtype == raw.dtype
                    torch.testing.assert_close(torch.from_numpy(probabilities), sharmix.sharmix(torch.from_numpy(raw)))


def test_rows_do_not_depend_on_their_block():
    raw = scores(3 * boosting._BLOCK // 7, 7)
    labels = np.arange(len(raw)) % 7
    gradient, hessian = Objective()(labels, raw)
    for part in (slice(4000, 5000), slice(-3, None)):
        alone = Objective()(labels[part], raw[part])
        np.testing.assert_array_equal(alone, (gradient[part], hessian[part]))
    assert Objective()(labels[:0], raw[:0])[0].shape == (0, 7)


def test_the_floor_stands_where_a_class_is_outside_the_support():
    raw = np.array([[9.0, 0.0, 0.0], [0.3, 0.0, -0.2]])
    gradient, hessian = Objective("sparsemax", hessian_floor=0.125)([1, 1], raw)
    np.testing.assert_array_equal(gradient[0], [1, -1, 0])
    np.testing.assert_array_equal(hessian[0], [0.125] * 3)
    np.testing.assert_allclose(hessian[1], [2 / 3] * 3, rtol=1e-6)


def test_a_weight_multiplies_a_row_s_gradient_hessian_and_loss():
    features, labels = problem(60)
    weight = np.arange(1.0, 61, dtype=np.float32)
    raw = scores(60, 3)
    objective = Objective("entmax", alpha=1.5)
    plain = objective(labels, raw)
    weighted = [
        objective(labels, raw, weight),
        objective(raw, lightgbm.Dataset(features, labels, weight=weight).construct()),
        objective(raw, xgboost.DMatrix(features, labels, weight=weight)),
    ]
    for pair in weighted:
        np.testing.assert_allclose(pair, np.array(plain) * weight[:, None], rtol=1e-6)
    p, y = objective.probabilities(raw), np.eye(3)[labels]
    expected = np.average(((p - y) ** 2).sum(1), weights=weight)
    assert XGBoostMetric(objective)(labels, raw, sample_weight=weight) == pytest.approx(expected)
    loss = sharmix.entmax_loss(torch.from_numpy(raw), torch.from_numpy(labels), 1.5, reduction="none").numpy()
    found = LightGBMMetric(objective, "fenchel_young")(labels, raw, weight)
    assert found == ("fenchel_young", pytest.approx(np.average(loss, weights=weight)), False)


def trees_of(model):
    return [tree["tree_structure"] for tree in model.dump_model()["tree_info"]]


def splits_and_leaves(tree):
    if "leaf_value" in tree:
        return [], [tree["leaf_value"]]
    sides = [splits_and_leaves(tree[side]) for side in ("left_child", "right_child")]
    here = [(tree["split_feature"], tree["threshold"])]
    return here + sides[0][0] + sides[1][0], sides[0][1] + sides[1][1]


def test_softmax_grows_the_trees_of_lightgbm_s_own_objective():
    """At a learning rate divided by its factor of the Hessian, classes/(classes − 1), from a start of 0."""
    features, labels = problem(classes=4)
    settings = SMALL | {"num_class": 4, "min_sum_hessian_in_leaf": 0.0, "boost_from_average": False}
    theirs = settings | {"objective": "multiclass", "learning_rate": 0.1}
    ours = settings | {"objective": Objective("softmax", hessian_floor=1e-15), "learning_rate": 0.1 * 3 / 4}
    models = [lightgbm.train(each, lightgbm.Dataset(features, labels), 8) for each in (theirs, ours)]
    trees = [list(map(splits_and_leaves, trees_of(model))) for model in models]
    assert len(trees[0]) == 32
    for (splits, leaves), (our_splits, our_leaves) in zip(*trees, strict=True):
        np.testing.assert_allclose(our_splits, splits, rtol=0, atol=1e-9)
        np.testing.assert_allclose(our_leaves, leaves, rtol=1e-4)
    found = ours["objective"].predict_proba(models[1], features)
    np.testing.assert_allclose(found, models[0].predict(features), atol=1e-6)


def test_softmax_grows_the_trees_of_xgboost_s_own_objective():
    """At half the learning rate, penalty and least sum of Hessians, for its Hessian is twice ours."""
    features, labels = problem(classes=4)
    data = xgboost.DMatrix(features, labels)
    settings = {"num_class": 4, "nthread": 1, "max_depth": 3, "base_score": 0.5}
    by_hessians = {"eta": 0.2, "reg_lambda": 1, "min_child_weight": 1}
    halved = {name: value / 2 for name, value in by_hessians.items()}
    objective = Objective("softmax", hessian_floor=1e-15)
    theirs = xgboost.train(settings | by_hessians | {"objective": "multi:softprob"}, data, 8)
    ours = xgboost.train(settings | halved, data, 8, obj=objective)
    np.testing.assert_allclose(objective.predict_proba(ours, data), theirs.predict(data), atol=1e-5)


def lightgbm_train(objective, train, valid, classes):
    data = lightgbm.Dataset(*train)
    settings = SMALL | {"objective": objective, "num_class": classes, "learning_rate": 0.3}
    stopping = [lightgbm.early_stopping(5, verbose=False)]
    return lightgbm.train(
        settings, data, 60, [data.create_valid(*valid)], feval=LightGBMMetric(objective), callbacks=stopping
    )


def lightgbm_classifier(objective, train, valid, classes):
    settings = SMALL | {"num_class": classes, "learning_rate": 0.3}
    model = lightgbm.LGBMClassifier(objective=objective, n_estimators=60, **settings)
    stopping = [lightgbm.early_stopping(5, verbose=False)]
    return model.fit(*train, eval_set=[valid], eval_metric=LightGBMMetric(objective), callbacks=stopping)


def xgboost_train(objective, train, valid, classes):
    settings = {"num_class": classes, "nthread": 1, "disable_default_eval_metric": True, "min_child_weight": 0}
    return xgboost.train(
        settings, xgboost.DMatrix(*train), 60, evals=[(xgboost.DMatrix(*valid), "valid")], obj=objective,
        custom_metric=XGBoostMetric(objective), early_stopping_rounds=5, verbose_eval=False,
    )  # fmt: skip


def xgboost_classifier(objective, train, valid, classes):
    model = xgboost.XGBClassifier(
        objective=objective, num_class=classes, n_estimators=60, n_jobs=1, min_child_weight=0,
        eval_metric=XGBoostMetric(objective), early_stopping_rounds=5, disable_default_eval_metric=True,
    )  # fmt: skip
    return model.fit(*train, eval_set=[valid], verbose=False)


# LightGBM 4.7 has new names for it, which the oldest release that the extra allows lacks.
pytestmark = pytest.mark.filterwarnings("ignore:The argument 'eval_set' is deprecated")
DOORS = [lightgbm_train, lightgbm_classifier, xgboost_train, xgboost_classifier]


def facts_of(model, features):
    """The arguments of `predict_proba`, the best round, counted from 1, and the metric's value there."""
    if isinstance(model, xgboost.Booster):
        data, rounds = xgboost.DMatrix(features), model.best_iteration + 1
        return (model, data), {"iteration_range": (0, rounds)}, rounds, model.best_score
    if isinstance(model, xgboost.XGBModel):
        return (model, features), {}, model.best_iteration + 1, model.best_score
    best = model.best_score if isinstance(model, lightgbm.Booster) else model.best_score_
    rounds = model.best_iteration if isinstance(model, lightgbm.Booster) else model.best_iteration_
    return (model, features), {}, rounds, best["valid_0"]["brier"]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("classes", [2, 3])
def test_through_every_door_models_learn_stop_early_and_predict_the_map(door, classes):
    (features, labels), valid = problem(classes=classes), problem(120, classes, seed=1)
    objective = Objective("sharmix_fixed", q=2.0, r=2.5)
    model = door(objective, (features, labels), valid, classes)
    arguments, options, rounds, value = facts_of(model, valid[0])
    assert 1 < rounds < 55
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # LightGBM warns where raw scores stand for probabilities
        p = objective.predict_proba(*arguments, **options)
    np.testing.assert_allclose(p.sum(1), 1, atol=1e-6)
    assert classes == 2 or (p == 0).any()
    assert ((p - np.eye(classes)[valid[1]]) ** 2).sum(1).mean() == pytest.approx(value, rel=1e-4)
    assert value < 0.8 * (1 - 1 / classes)  # of equal probabilities


@pytest.mark.parametrize("door", DOORS)
def test_models_and_objectives_survive_pickling(door):
    features, labels = problem()
    objective = Objective("entmax", alpha=1.25, hessian_floor=0.02)
    model = door(objective, (features, labels), problem(60, seed=1), 3)
    again, same = pickle.loads(pickle.dumps((model, objective)))
    assert repr(same) == repr(objective) == "Objective(Entmax(alpha=1.25), hessian_floor=0.02)"
    data = features if door is not xgboost_train else xgboost.DMatrix(features)
    np.testing.assert_array_equal(same.predict_proba(again, data), objective.predict_proba(model, data))


def test_a_classifier_with_an_objective_can_be_cloned():
    base = pytest.importorskip("sklearn.base")
    for classifier in (lightgbm.LGBMClassifier, xgboost.XGBClassifier):
        twin = base.clone(classifier(objective=Objective("sparsemax")))
        assert repr(twin.objective) == "Objective(Sparsemax(), hessian_floor=0.001)"


def test_a_classifier_s_labels_are_those_of_the_largest_probabilities():
    """As the docstring says it, by a scorer of scikit-learn; LightGBM's own `score` fails on raw scores."""
    selection = pytest.importorskip("sklearn.model_selection")
    features, labels = problem()

    def accuracy(model, x, y):
        return (model.classes_[model.objective.predict_proba(model, x).argmax(-1)] == y).mean()

    names = np.array(["ant", "bee", "cat"])
    light = lightgbm.LGBMClassifier(n_estimators=5, **SMALL)
    for model, y in ((light, names[labels]), (xgboost.XGBClassifier(n_estimators=5, n_jobs=1), labels)):
        grid = {"objective": [Objective("sparsemax"), Objective("entmax", alpha=1.5)]}
        found = selection.GridSearchCV(model, grid, scoring=accuracy, cv=2).fit(features, y)
        assert found.cv_results_["mean_test_score"].min() > 0.6


def test_a_start_of_lightgbm_is_added_to_its_predictions():
    (features, labels), start = problem(), np.log([0.2, 0.3, 0.5])
    objective = Objective()
    data = lightgbm.Dataset(features, labels, init_score=np.tile(start, (len(labels), 1)))
    settings = SMALL | {"objective": objective, "num_class": 3}
    values = {}
    record = [lightgbm.record_evaluation(values)]
    model = lightgbm.train(settings, data, 5, [data], feval=LightGBMMetric(objective), callbacks=record)
    p = objective.probabilities(model.predict(features, raw_score=True) + start)
    expected = ((p - np.eye(3)[labels]) ** 2).sum(1).mean()
    assert values["training"]["brier"][-1] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_scores_without_probabilities_are_named_where_the_packages_would_train_on(bad):
    features, labels = problem()
    start = np.zeros((len(labels), 3))
    start[5, 1] = bad
    message = re.escape(f"raw scores [0.0, {bad}, 0.0] of a row have no probabilities; scores that the model starts")
    with pytest.raises(ValueError, match=message):
        xgboost.train({"num_class": 3}, xgboost.DMatrix(features, labels, base_margin=start), 1, obj=Objective())
    for act in ("softmax", "sparsemax", "sharmix_fixed"):
        with pytest.raises(ValueError, match=message):
            Objective(act)(labels, start)


def test_a_class_may_start_from_minus_infinity():
    """The logarithm of a share of 0."""
    gradient, hessian = Objective("entmax", alpha=1.5)([1, 2], np.array([[-np.inf, 0.0, 0.0]] * 2))
    np.testing.assert_allclose(gradient, [[0, -0.5, 0.5], [0, 0.5, -0.5]], atol=1e-7)
    np.testing.assert_allclose(hessian, [[1e-3, 0.35355338, 0.35355338]] * 2, rtol=1e-6)


def test_labels_and_scores_that_are_not_allowed_are_named():
    raw = scores(4, 3)
    outside = "with 3 raw scores a row (num_class=3) labels are the whole numbers 0 to 2"
    with every_case() as case:
        for labels, given, weight, error, message in (
            ([0, 1, 2, 3], raw, None, ValueError, f"label 3 is not allowed; {outside}"),
            ([0, 1, 2, -1], raw, None, ValueError, f"label -1 is not allowed; {outside}"),
            ([0, 1, 2, 0.5], raw, None, ValueError, f"label 0.5 is not allowed; {outside}"),
            ([0, 1, 2, np.nan], raw, None, ValueError, f"label nan is not allowed; {outside}"),
            ([0, 1], raw, None, ValueError, "labels of shape (2,) do not match raw scores of shape (4, 3)"),
            ([0] * 4, raw, [1.0], ValueError, "sample_weight of shape (1,) do not match"),
            ([0] * 4, raw[:, 0], None, ValueError, "raw scores of shape (4,) are not allowed"),
            ([0] * 4, raw[:, :1], None, ValueError, "at least 2 classes; give num_class, for two classes num_class=2"),
            ([0] * 4, raw.astype(int), None, TypeError, "must be a NumPy array of float32 or float64, got int64"),
            ([0] * 4, raw.tolist(), None, TypeError, "must be a NumPy array of float32 or float64, got list"),
        ):
            for called in (Objective(), LightGBMMetric(Objective()), XGBoostMetric(Objective(), "fenchel_young")):
                with case(message=message), pytest.raises(error, match=re.escape(message)):
                    called(labels, given, weight)
    features, labels = problem()
    with pytest.raises(ValueError, match=r"label 2\.0 is not allowed; with 2 raw scores"):
        lightgbm.train(SMALL | {"objective": Objective(), "num_class": 2}, lightgbm.Dataset(features, labels), 1)
    with pytest.raises(ValueError, match="for two classes num_class=2"):
        xgboost.XGBClassifier(objective=Objective(), n_jobs=1).fit(features, labels > 0)


def test_arguments_that_are_not_allowed_are_named():
    with every_case() as case:
        for error, message, call in (
            (ValueError, "q, r of SharMiX.* cannot be learned", lambda: Objective("sharmix_learned")),
            (ValueError, "dim=1 of Softmax", lambda: Objective(sharmix.Softmax(dim=1))),
            (ValueError, "q cannot be given beside a module", lambda: Objective(sharmix.Softmax(), q=1.5)),
            (ValueError, "hessian_floor=0 is not allowed", lambda: Objective(hessian_floor=0)),
            (ValueError, "hessian_floor=nan is not allowed", lambda: Objective(hessian_floor=float("nan"))),
            (ValueError, "there is no activation 'sharmx'", lambda: Objective("sharmx")),
            (TypeError, "must be a name or an instance", lambda: Objective(sharmix.SharMiX)),
            (ValueError, r"q of shape \(5, 1\)", lambda: Objective(sharmix.SharMiX(q=torch.full((5, 1), 1.5)))),
            (RuntimeError, "alpha-ReLU has no threshold yet", lambda: Objective("alpha_relu")),
            (ValueError, "kind='log' is not allowed", lambda: LightGBMMetric(Objective(), "log")),
            (TypeError, "must be the Objective .* got 'entmax'", lambda: XGBoostMetric("entmax")),
            (
                TypeError,
                "got LogisticRegression",
                lambda: Objective().predict_proba(LogisticRegression(), scores(2, 3)),
            ),
        ):
            with case(message=message), pytest.raises(error, match=message):
                call()


def test_a_learned_module_is_taken_as_it_stands():
    act = sharmix.SharMiX(learned=True).requires_grad_(False)
    objective, raw = Objective(act), scores(3, 4)
    before = objective.probabilities(raw)
    act.q.fill_(1.9)
    np.testing.assert_array_equal(objective.probabilities(raw), before)
    np.testing.assert_array_equal(before, Objective().probabilities(raw))


def test_read_only_scores_are_read():
    raw = scores(5, 3)
    raw.flags.writeable = False
    np.testing.assert_array_equal(Objective().probabilities(raw), Objective().probabilities(raw.copy()))


MEMORY = """
import re, sys
from pathlib import Path
import numpy as np
import sharmix.integrations.boosting

def peak():
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

assert not {"lightgbm", "xgboost"} & set(sys.modules)
objective, labels = sharmix.integrations.boosting.Objective(), np.zeros(200_000, np.float32)
raw = np.ones((len(labels), 10), order="F")
objective(labels[:30_000], raw[:30_000])
before = peak()
made = objective(labels, raw)
print((peak() - before) / sum(array.nbytes for array in made))
"""


@pytest.mark.medium
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells the peak")
def test_raw_scores_are_not_copied():
    """The peak grows by gradient and Hessian, and by weights of 1 a row; a copy of the scores would double that."""
    done = subprocess.run([sys.executable, "-c", MEMORY], check=True, capture_output=True, text=True, timeout=120)
    assert 0.5 < float(done.stdout) < 1.3  # memory that was free already does not raise the peak


@pytest.mark.parametrize("name", ["Objective", "LightGBMMetric", "XGBoostMetric"])
def test_the_example_of(name):
    (example,) = doctest.DocTestFinder(recurse=False).find(getattr(boosting, name), name)
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0


def test_without_numpy_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "numpy", None)
    spec = importlib.util.find_spec("sharmix.integrations.boosting")
    with pytest.raises(ImportError, match=r"pip install 'sharmix\[lightgbm\]' or 'sharmix\[xgboost\]'"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
