"""scikit-learn's estimators: its own checks, and agreement with its classifiers and with independent solvers."""

import numpy as np
import pytest
import torch
from entmax.losses import entmax15_loss, sparsemax_loss
from hypothesis import given, settings
from hypothesis import strategies as st

import sharmix
from tests.sharmix.cases import for_every

pytest.importorskip("sklearn")

from scipy.optimize import minimize
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from sharmix.integrations.sklearn import FenchelYoungClassifier, SharMiXScaling

CLASSIFIERS = {
    "SharMiX": FenchelYoungClassifier(),
    "alpha-ReLU": FenchelYoungClassifier(activation="alpha_relu", class_weight="balanced"),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # of few iterations, to be quick
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")  # by scikit-learn's own checks
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_every_check_of_scikit_learn(name):
    results = check_estimator(CLASSIFIERS[name], on_skip=None, on_fail=None)
    failed = [(result["check_name"], result["exception"]) for result in results if result["status"] != "passed"]
    assert len(results) > 40
    assert [name for name, _ in failed] in ([], ["check_array_api_input"]), failed  # skipped without SCIPY_ARRAY_API


def blobs(classes=3, examples=120):
    return make_classification(
        examples, 6, n_informative=4, n_classes=classes, flip_y=0.2, class_sep=0.7, random_state=0
    )


def exactly(*args, **kwargs):
    return FenchelYoungClassifier(*args, tol=1e-9, max_iter=5000, **kwargs)


@for_every(classes=(2, 3), alpha=(0.1, 10), class_weight=(None, {"ash": 5.0, "beech": 0.5}))
def test_softmax_is_logistic_regression(classes, alpha, class_weight):
    X, y = blobs(classes)
    labels = np.array(["ash", "beech", "cedar"])[y]
    weights = np.random.default_rng(0).uniform(0, 3, len(y))
    theirs = LogisticRegression(C=1 / alpha, class_weight=class_weight, tol=1e-9, max_iter=5000)
    theirs.fit(X, labels, weights)
    ours = exactly(1, 1, alpha=alpha, class_weight=class_weight).fit(X, labels, weights)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-6)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-6)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-5)
    assert (ours.predict(X) == theirs.predict(X)).all()


@pytest.mark.parametrize(("order", "loss"), [(1.5, entmax15_loss), (2.0, sparsemax_loss)])
def test_sparse_losses_reach_the_minimum_that_another_package_and_solver_find(order, loss):
    X, y = blobs()
    inputs, labels = torch.tensor(X), torch.tensor(y)

    def value_and_gradient(flat):
        weights = torch.tensor(flat.reshape(7, 3), requires_grad=True)
        logits = inputs @ weights[:6] + weights[6]
        value = (loss(logits, labels).sum() + 0.35 * weights[:6].square().sum()) / len(y)
        value.backward()
        return value.item(), weights.grad.numpy().ravel()

    found = minimize(value_and_gradient, np.zeros(21), jac=True, method="BFGS", options={"gtol": 1e-9})
    ours = exactly(order, order, alpha=0.7).fit(X, y)
    assert ours.loss_ == pytest.approx(found.fun, abs=1e-9)
    np.testing.assert_allclose(ours.coef_, found.x.reshape(7, 3)[:6].T, atol=1e-5)
    assert (ours.predict_proba(X) == 0).any()


@pytest.mark.medium
def test_probabilities_as_targets():
    X, y = blobs()
    targets = np.random.default_rng(0).dirichlet(np.ones(3), len(y))
    soft = exactly(1, 1).fit(X, targets)
    repeated = LogisticRegression(tol=1e-9, max_iter=5000)
    repeated.fit(np.repeat(X, 3, 0), np.tile(range(3), len(y)), targets.ravel())
    np.testing.assert_allclose(soft.predict_proba(X), repeated.predict_proba(X), atol=1e-6)
    assert (soft.predict(X) == soft.predict_proba(X).argmax(1)).all()

    weights = {0: 3.0, 2: 0.2}
    of_labels = exactly(1.5, 2, class_weight=weights).fit(X, y)
    of_one_hot = exactly(1.5, 2, class_weight=weights).fit(X, np.eye(3)[y])
    np.testing.assert_allclose(of_one_hot.predict_proba(X), of_labels.predict_proba(X), atol=1e-5)
    without = exactly(1.5, 2, class_weight={2: 0.0}).fit(X, np.eye(3)[y])
    two = exactly(1.5, 2).fit(X[y < 2], np.eye(3)[y[y < 2]])
    np.testing.assert_allclose(without.predict_proba(X), two.predict_proba(X), atol=1e-5)
    balanced = exactly(1.5, 2, class_weight="balanced").fit(X[:90], y[:90])
    counts = np.bincount(y[:90])
    by_hand = exactly(1.5, 2).fit(X[:90], y[:90], (90 / (3 * counts))[y[:90]])
    np.testing.assert_allclose(balanced.predict_proba(X), by_hand.predict_proba(X), atol=1e-5)
    rounded, exact = (exactly(1.5, 2).fit(X, np.eye(3)[y] * total) for total in (1 + 5e-4, 1))
    assert rounded.loss_ == pytest.approx(exact.loss_, rel=1e-9)


def test_a_class_without_weight_counts_among_the_balanced_ones():
    X, y = np.arange(4.0)[:, None], np.array([0, 1, 0, 2])
    balanced = FenchelYoungClassifier(1, 1, class_weight="balanced").fit(X, y, [1, 1, 1, 0])
    by_hand = FenchelYoungClassifier(1, 1).fit(X, y, [0.5, 1, 0.5, 0])
    np.testing.assert_allclose(balanced.coef_, by_hand.coef_, atol=1e-4)


def test_outputs_that_are_all_0_give_equal_probabilities():
    closed = FenchelYoungClassifier(activation="alpha_relu", activation_params={"tau": 5.0}, alpha=1e3)
    X = np.arange(4.0)[:, None]
    assert (closed.fit(X, [0, 1, 0, 1]).predict_proba(X) == 0.5).all()


def test_a_fit_trains_in_inference_mode():
    with torch.inference_mode():
        FenchelYoungClassifier().fit(*blobs())
        SharMiXScaling(q=1, r=1).fit(*logits_and_labels())


@pytest.mark.medium
@for_every(name=[name for name in sharmix.available_activations() if not name.endswith("learned")])
def test_every_activation_that_learns_nothing(name):
    X, y = load_iris(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    ours = FenchelYoungClassifier(activation=name).fit(X, y)
    p = ours.predict_proba(X)
    np.testing.assert_allclose(p.sum(1), 1, atol=1e-12)
    assert ours.score(X, y) > 0.9
    assert (ours.predict(X) == p.argmax(1)).all()


def test_a_fit_that_stops_early_warns():
    with pytest.warns(ConvergenceWarning, match="max_iter=3, or scale the features") as warned:
        ours = FenchelYoungClassifier(max_iter=3).fit(*blobs())
    assert warned[0].filename == __file__
    assert ours.n_iter_ == 3
    with pytest.warns(ConvergenceWarning) as warned:
        cross_val_score(make_pipeline(ours), *blobs())
    assert warned[0].filename == __file__


X, Y = blobs()
ONE_HOT = np.eye(3)[Y]


@for_every(
    "parameters, given, error, message",
    [
        ({"max_iter": 0}, (X, Y), ValueError, "max_iter == 0"),
        ({"alpha": np.nan}, (X, Y), ValueError, "alpha=nan is not allowed"),
        ({"activation_params": {"tau": 1}}, (X, Y), ValueError, "need the name of an activation"),
        ({"activation": "softmix"}, (X, Y), ValueError, "did you mean softmax"),
        ({"activation": "sharmix_learned"}, (X, Y), ValueError, r"SharMiX\(.* learns q, r, .* does not train"),
        ({"activation": sharmix.Softmax()}, (X, Y), TypeError, r"must be a name, .*; got Softmax\(\)"),
        ({}, (X * 1e300, Y), ValueError, "not finite after 0 iterations; scale the features"),
        ({}, (X, ONE_HOT * 2), ValueError, "rows that sum to 1"),
        ({}, (X, ONE_HOT - [[0.5, -0.5, 0]]), ValueError, "at least 0"),
        ({}, (X, ONE_HOT[:, :2] * np.nan), ValueError, "NaN"),
        ({}, (X, ONE_HOT * 1.05), ValueError, "sums from 1.05 to 1.05"),
        ({}, (X, 0 * Y), ValueError, "y has one class, 0"),
    ],
)
def test_what_is_not_allowed_is_named(parameters, given, error, message):
    with pytest.raises(error, match=message):
        FenchelYoungClassifier(**parameters).fit(*given)


def logits_and_labels(seed=0, examples=150, classes=4, scale=2.0):
    rng = np.random.default_rng(seed)
    logits = 3 * rng.normal(size=(examples, classes))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    return scale * logits, labels


def mean_loss(loss, logits, labels, q, r, temperature):
    p = sharmix.sharmix(torch.tensor(logits), q, r, temperature).numpy()
    at_label = p[range(len(p)), labels]
    with np.errstate(divide="ignore"):
        return -np.log(at_label).mean() if loss == "log" else ((p - np.eye(p.shape[1])[labels]) ** 2).sum(1).mean()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:temperature .* is an end")  # of 20 examples every prediction may be right
@settings(max_examples=10)
@given(
    seed=st.integers(0, 1000),
    loss=st.sampled_from(["brier", "log"]),
    scale=st.floats(0.2, 20),
    examples=st.sampled_from([20, 60]),
)
def test_a_fit_is_no_worse_than_a_grid(seed, loss, scale, examples):
    logits, labels = logits_and_labels(seed, examples, 3, scale)
    fitted = SharMiXScaling(loss=loss).fit(logits, labels)
    assert fitted.loss_ == pytest.approx(
        mean_loss(loss, logits, labels, fitted.q_, fitted.r_, fitted.temperature_), rel=1e-12
    )
    grid = [
        mean_loss(loss, logits, labels, q, r, scale * ratio)
        for q in (1.0, 1.2, 1.5, 1.8, 2.0)
        for r in (2 - 1 / q, q, 1.6, 2.0, 2.6, 4.0)
        if r >= 2 - 1 / q
        for ratio in (0.3, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 8.0)
    ]
    assert fitted.loss_ <= min(grid) + 1e-9


def test_values_that_are_given_are_held():
    logits, labels = logits_and_labels()
    held = SharMiXScaling(temperature=2.5, q=1.3, r=1.9).fit(logits, labels)
    assert (held.q_, held.r_, held.temperature_) == (1.3, 1.9, 2.5)
    assert SharMiXScaling(temperature=3.0).fit(logits, labels).temperature_ == 3  # whose logarithm is rounded
    assert SharMiXScaling(q=1.5, r=4 / 3).fit(logits, labels).r_ == 4 / 3  # a rounded 2 − 1/q
    few = logits_and_labels(examples=60, classes=3)
    assert SharMiXScaling(r=1.3).fit(*few).q_ == pytest.approx(1 / (2 - 1.3))  # the largest, which lets r be 1.3
    tied = SharMiXScaling(r="q").fit(logits, labels)
    assert tied.r_ == tied.q_


def test_examples_that_do_not_determine_the_temperature_warn():
    logits, labels = logits_and_labels()
    for name, z, y in (("all right", logits, logits.argmax(1)), ("equal logits", 0 * logits, labels)):
        with pytest.warns(ConvergenceWarning, match="these 150 examples do not determine it") as warned:
            fitted = SharMiXScaling(q=1, r=1).fit(z, y)
        assert warned[0].filename == __file__
        assert (fitted.temperature_ == 1) == (name == "equal logits")


def test_a_log_loss_that_is_infinite_everywhere_warns_if_there_is_something_to_fit():
    z = np.array([[1e9, 0], [1.0, 0], [1, 0]])
    with pytest.warns(ConvergenceWarning, match="log loss is infinite at every"):
        SharMiXScaling(loss="log", q=2, r=2).fit(z, [1, 0, 0])
    assert SharMiXScaling(loss="log", q=2, r=2, temperature=0.01).fit(z, [1, 0, 0]).loss_ == np.inf


def test_the_best_minimum_may_have_a_large_r():
    rng = np.random.default_rng(471909)
    rng.choice([20, 60])
    z = 3 * rng.normal(size=(20, 3))
    y = (z + rng.gumbel(size=z.shape)).argmax(1)
    assert SharMiXScaling(q=2.0).fit(2 * z, y).loss_ < 0.277  # 0.302 from the least r alone


@pytest.mark.medium
def test_rows_whose_logits_are_equal_change_no_fit():
    logits, labels = logits_and_labels()
    more = np.concatenate([logits, np.zeros((200, 4))]), np.concatenate([labels, np.zeros(200, int)])
    alone, beside = (SharMiXScaling(q=1, r=1).fit(*given) for given in ((logits, labels), more))
    assert beside.temperature_ == pytest.approx(alone.temperature_, rel=1e-6)


@pytest.mark.medium
def test_weights_of_a_fit_are_repetitions():
    logits, labels = logits_and_labels()
    weights = np.random.default_rng(0).integers(0, 4, len(labels))
    weighted = SharMiXScaling(loss="log").fit(logits, labels, weights)
    repeated = SharMiXScaling(loss="log").fit(logits.repeat(weights, 0), labels.repeat(weights))
    np.testing.assert_allclose(weighted.transform(logits), repeated.transform(logits), atol=1e-6)
    logits[weights == 0] = np.where(np.eye(4)[labels[weights == 0]], -1e300, 1e300)  # whose own loss is infinite
    again = SharMiXScaling(loss="log").fit(logits, labels, weights)
    assert again.loss_ == weighted.loss_


LOGITS, LABELS = logits_and_labels()


@for_every(
    "parameters, labels, message",
    [
        ({"q": 0.9}, LABELS, "q=0.9 is not allowed"),
        ({"temperature": "1"}, LABELS, "temperature='1' is not allowed"),
        ({"temperature": 0}, LABELS, "temperature=0 is not allowed"),
        ({"r": 0.9}, LABELS, "r=0.9 is not allowed; with q=None it must be at least 1"),
        ({"q": 2, "r": 1.4}, LABELS, "r=1.4 is not allowed; with q=2 it must be at least 1.5"),
        ({"r": "alpha"}, LABELS, "r='alpha' is not allowed"),
        ({"loss": "hinge"}, LABELS, "loss='hinge' is not allowed"),
        ({}, LABELS + 1, "label 4 is out of range for 4 classes; allowed are 0 to 3$"),
        ({}, LABELS / 2, "integers"),
        ({}, LABELS[:9], "integers"),
    ],
)
def test_a_scaling_names_what_is_not_allowed(parameters, labels, message):
    with pytest.raises(ValueError, match=message):
        SharMiXScaling(**parameters).fit(LOGITS, labels)


@pytest.mark.parametrize("classes", [2, pytest.param(3, marks=pytest.mark.medium)])
def test_temperature_scaling_is_that_of_scikit_learn(classes):
    X, y = blobs(classes, 300)
    theirs = CalibratedClassifierCV(LogisticRegression(C=100), method="temperature", ensemble=False, cv=3).fit(X, y)
    held_out = cross_val_predict(LogisticRegression(C=100), X, y, cv=3, method="decision_function")
    logits = LogisticRegression(C=100).fit(X, y).decision_function(X)
    if classes == 2:
        held_out, logits = (np.stack([np.zeros_like(x), x], 1) for x in (held_out, logits))
    ours = SharMiXScaling(q=1, r=1, loss="log").fit(held_out, y)
    np.testing.assert_allclose(ours.transform(logits), theirs.predict_proba(X), atol=1e-5)
