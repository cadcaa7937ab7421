"""Objective and metric of boosted trees, against finite differences and the packages' own objectives."""

import pickle
import re

import pytest
import torch

import sharmix
from tests.sharmix.cases import every_case

np = pytest.importorskip("numpy")
lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")

from sklearn.linear_model import LogisticRegression  # noqa: E402

from sharmix.integrations.boosting import LightGBMMetric, Objective  # noqa: E402

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


def scores(rows, classes, dtype="float64", order="C"):
    drawn = 2 * np.random.default_rng(0).standard_normal((rows, classes))
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
    assert LightGBMMetric(objective)(labels, raw, weight) == ("brier", pytest.approx(expected), False)
    loss = sharmix.entmax_loss(torch.from_numpy(raw), torch.from_numpy(labels), 1.5, reduction="none").numpy()
    found = LightGBMMetric(objective, "fenchel_young")(labels, raw, weight)
    assert found == ("fenchel_young", pytest.approx(np.average(loss, weights=weight)), False)


def test_softmax_grows_the_trees_of_lightgbm_s_own_objective():
    """At a learning rate divided by its factor of the Hessian, classes/(classes − 1), from a start of 0."""
    features, labels = problem(classes=4)
    settings = SMALL | {"num_class": 4, "min_sum_hessian_in_leaf": 0.0, "boost_from_average": False}
    theirs = settings | {"objective": "multiclass", "learning_rate": 0.1}
    ours = settings | {"objective": Objective("softmax", hessian_floor=1e-15), "learning_rate": 0.1 * 3 / 4}
    models = [lightgbm.train(each, lightgbm.Dataset(features, labels), 8) for each in (theirs, ours)]
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


# LightGBM 4.7 has new names for it, which the oldest release that the extra allows lacks.
pytestmark = pytest.mark.filterwarnings("ignore:The argument 'eval_set' is deprecated")


def lightgbm_models(objective, train, valid, classes):
    """A booster and a classifier, stopped early by the metric, with the metric's value in the best round."""
    settings = SMALL | {"num_class": classes, "learning_rate": 0.3}
    stopping, metric = [lightgbm.early_stopping(5, verbose=False)], LightGBMMetric(objective)
    data = lightgbm.Dataset(*train)
    valid_data = data.create_valid(*valid)
    booster = lightgbm.train(
        settings | {"objective": objective}, data, 60, [valid_data], None, metric, callbacks=stopping
    )
    yield booster, booster.best_iteration, booster.best_score
    classifier = lightgbm.LGBMClassifier(objective=objective, n_estimators=60, **settings)
    classifier.fit(*train, eval_set=[valid], eval_metric=metric, callbacks=stopping)
    yield classifier, classifier.best_iteration_, classifier.best_score_


@pytest.mark.parametrize("classes", [2, 3])
def test_models_of_lightgbm_learn_stop_early_and_predict_the_map(classes):
    (features, labels), valid = problem(classes=classes), problem(120, classes, seed=1)
    objective = Objective("sharmix_fixed", q=2.0, r=2.5)
    for model, rounds, best in lightgbm_models(objective, (features, labels), valid, classes):
        assert 1 < rounds < 55
        p = objective.predict_proba(model, valid[0])  # LightGBM warns where raw scores stand for probabilities
        np.testing.assert_allclose(p.sum(1), 1, atol=1e-6)
        assert classes == 2 or (p == 0).any()
        value = ((p - np.eye(classes)[valid[1]]) ** 2).sum(1).mean()
        assert value == pytest.approx(best["valid_0"]["brier"], rel=1e-4)
        assert value < 0.8 * (1 - 1 / classes)  # of equal probabilities


@pytest.mark.parametrize("classes", [2, 3])
def test_models_of_xgboost_learn_and_predict_the_map(classes):
    (features, labels), (others, truth) = problem(classes=classes), problem(120, classes, seed=1)
    objective = Objective("sharmix_fixed", q=2.0, r=2.5)
    settings = {"num_class": classes, "min_child_weight": 0}
    booster = xgboost.train(settings | {"nthread": 1}, xgboost.DMatrix(features, labels), 9, obj=objective)
    classifier = xgboost.XGBClassifier(
        objective=objective, n_estimators=9, n_jobs=1, disable_default_eval_metric=True, **settings
    ).fit(features, labels)
    for model, data in ((booster, xgboost.DMatrix(others)), (classifier, others)):
        p = objective.predict_proba(model, data)
        np.testing.assert_allclose(p.sum(1), 1, atol=1e-6)
        assert ((p - np.eye(classes)[truth]) ** 2).sum(1).mean() < 0.8 * (1 - 1 / classes)


def test_a_model_and_its_objective_survive_pickling():
    features, labels = problem()
    objective = Objective("entmax", alpha=1.25, hessian_floor=0.02)
    model = lightgbm.LGBMClassifier(objective=objective, n_estimators=5, **SMALL).fit(features, labels)
    again, same = pickle.loads(pickle.dumps((model, objective)))
    assert repr(same) == repr(objective) == "Objective(Entmax(alpha=1.25), hessian_floor=0.02)"
    np.testing.assert_array_equal(same.predict_proba(again, features), objective.predict_proba(model, features))


def test_labels_and_scores_that_are_not_allowed_are_named():
    raw = scores(4, 3)
    outside = "with num_class=3 labels are the whole numbers 0 to 2"
    with every_case() as case:
        for labels, given, weight, error, message in (
            ([0, 1, 2, 3], raw, None, ValueError, f"label 3 is not allowed; {outside}"),
            ([0, 1, 2, 0.5], raw, None, ValueError, f"label 0.5 is not allowed; {outside}"),
            ([0, 1, 2, np.nan], raw, None, ValueError, f"label nan is not allowed; {outside}"),
            ([0, 1], raw, None, ValueError, "labels of shape (2,) do not match raw scores of shape (4, 3)"),
            ([0] * 4, raw, [1.0], ValueError, "sample_weight of shape (1,) do not match"),
            ([0] * 4, raw[:, 0], None, ValueError, "raw scores of shape (4,) are not allowed"),
            ([0] * 4, raw[:, :1], None, ValueError, "at least 2 classes; give num_class, for two classes num_class=2"),
            ([0] * 4, raw.astype(int), None, TypeError, "must be a NumPy array of float32 or float64, got int64"),
        ):
            for called in (Objective(), LightGBMMetric(Objective())):
                with case(message=message), pytest.raises(error, match=re.escape(message)):
                    called(labels, given, weight)
    features, labels = problem()
    with pytest.raises(ValueError, match="for two classes num_class=2"):
        xgboost.XGBClassifier(objective=Objective(), n_jobs=1).fit(features, labels > 0)


def test_arguments_that_are_not_allowed_are_named():
    with every_case() as case:
        for error, message, call in (
            (ValueError, "q, r of SharMiX.* cannot be learned", lambda: Objective("sharmix_learned")),
            (ValueError, "dim=1 of Softmax", lambda: Objective(sharmix.Softmax(dim=1))),
            (ValueError, "q cannot be given beside a module", lambda: Objective(sharmix.Softmax(), q=1.5)),
            (ValueError, "hessian_floor=0 is not allowed", lambda: Objective(hessian_floor=0)),
            (TypeError, "must be a name or an instance", lambda: Objective(sharmix.SharMiX)),
            (ValueError, r"q of shape \(5, 1\)", lambda: Objective(sharmix.SharMiX(q=torch.full((5, 1), 1.5)))),
            (RuntimeError, "alpha-ReLU has no threshold yet", lambda: Objective("alpha_relu")),
            (ValueError, "kind='log' is not allowed", lambda: LightGBMMetric(Objective(), "log")),
            (TypeError, "must be the Objective .* got 'entmax'", lambda: LightGBMMetric("entmax")),
            (TypeError, "got LogisticRegression", lambda: Objective().predict_proba(LogisticRegression(), [[0.0]])),
        ):
            with case(message=message), pytest.raises(error, match=message):
                call()
