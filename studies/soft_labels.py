"""Learning label distributions: softmax, entmax and SharMiX by their own losses of soft targets.

All contenders have the same model and search. The validation score chooses the L2 penalty and the orders of each, which
is then fitted again to all training examples of the fold.
"""

import warnings
from io import BytesIO
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.io import loadmat
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import sharmix
from sharmix.integrations.sklearn import FenchelYoungClassifier
from studies.class_sets import best_threshold, mean_f1
from studies.comparison import compare, table_of_changes, table_of_means
from studies.hidden_layer import HiddenLayer
from studies.public_files import read_public_file
from studies.study import Finding, Report, Row, Settings, Task, rows_of

Distributions = NDArray[np.float64]
Rows = NDArray[np.int64]

EPSILON = np.finfo(np.float64).eps
HIGHER_IS_BETTER = ("cosine", "intersection", "support_f1")
THRESHOLD = "softmax, threshold"  # the support alone: classes whose probability reaches a threshold


def tasks(settings: Settings, data: Path | None) -> list[Task]:
    return [
        {"data_set": data_set, "model": model, "fold": fold}
        for data_set, model, fold in product(settings["data_sets"], settings["models"], range(settings["folds"]))
    ]


def measure(task: Task, settings: Settings, data: Path | None) -> list[Row]:
    arrays = loadmat(BytesIO(read_public_file(data, settings["data_sets"][task["data_set"]])))
    targets = arrays["labels"] / arrays["labels"].sum(-1, keepdims=True)  # some sum to 1 only in float32
    folds = KFold(settings["folds"], shuffle=True, random_state=settings["seed"])
    train, test = list(folds.split(targets))[task["fold"]]
    features = arrays["features"]
    components = min(settings["components"], *features[train].shape)
    reduced = make_pipeline(StandardScaler(), PCA(components, random_state=settings["seed"])).fit(features[train])
    x = reduced.transform(features).astype(np.float32)
    x /= x[train].std()
    fitted_on, chosen_on = train_test_split(train, test_size=settings["validation_share"], random_state=task["fold"])

    model = settings["models"][task["model"]]

    def predicted(candidate: Settings, penalty: float, fitted_on: Rows, at: Rows) -> Distributions:
        name, parameters = candidate["activation"], candidate.get("parameters", {})
        options = settings["solver"] | {"alpha": penalty * len(fitted_on)}
        if units := model["hidden_units"]:
            activation = sharmix.build_activation(name, **parameters)
            classifier = HiddenLayer(activation, units, seed=settings["seed"], **options)
        else:
            classifier = FenchelYoungClassifier(activation=name, activation_params=parameters, **options)
        with warnings.catch_warnings():  # all contenders have the same number of iterations
            warnings.simplefilter("ignore", ConvergenceWarning)
            classifier.fit(x[fitted_on], targets[fitted_on])
        p = classifier.predict_proba(x[at]).astype(np.float64)  # in which rounding does not matter
        return p / p.sum(-1, keepdims=True)

    rows = []
    for contender, candidates in settings["contenders"].items():
        tried = []
        for candidate, penalty in product(candidates, model["penalties"]):
            p = predicted(candidate, penalty, fitted_on, chosen_on)
            score = distribution_distances(targets[chosen_on], p)[settings["primary"]]
            tried.append((score if settings["primary"] in HIGHER_IS_BETTER else -score, candidate, penalty, p))
        _, candidate, penalty, validated = max(tried, key=lambda one: one[0])
        p = predicted(candidate, penalty, train, test)
        values = distribution_distances(targets[test], p) | {"zeros": (p == 0).mean(), "penalty": penalty}
        values |= candidate.get("parameters", {})
        rows += rows_of(values, contender=contender)
        if contender == "softmax":
            threshold, _ = best_threshold(validated, targets[chosen_on] > 0)
            rows += rows_of({"support_f1": mean_f1(p >= threshold, targets[test] > 0)}, contender=THRESHOLD)
    return rows


def distribution_distances(true: Distributions, predicted: Distributions) -> dict[str, float]:
    """The usual metrics of distributions [n, classes] and the F1 of their supports, each a mean over the examples.

    Source: Geng (2016), Label Distribution Learning. Zeros are treated as in PyLDL: where a metric divides or takes
    logarithms, probabilities are at least the machine epsilon.
    """
    difference = np.abs(true - predicted)
    y, p = (np.clip(one, EPSILON, 1) for one in (true, predicted))
    ratio = np.abs(y - p) / (y + p)
    lengths = np.linalg.norm(true, axis=-1) * np.linalg.norm(predicted, axis=-1)
    values = {
        "chebyshev": difference.max(-1),
        "clark": np.sqrt((ratio**2).sum(-1)),
        "canberra": ratio.sum(-1),
        "kl": (y * np.log(y / p)).sum(-1),
        "cosine": (true * predicted).sum(-1) / lengths,
        "intersection": np.minimum(true, predicted).sum(-1),
    }
    means = {name: float(value.mean()) for name, value in values.items()}
    return means | {"support_f1": mean_f1(predicted > 0, true > 0)}


def report(records: pd.DataFrame, settings: Settings, shown: Settings) -> Report:
    primary, pairs, of_zeros = settings["primary"], shown["compared"], shown["with_zeros"]
    [(contender, shown_as)] = shown["found"].items()
    tables, findings = {}, []
    for model, own in records.groupby("model", sort=False):
        changes = table_of_changes(own, pairs, shown["metrics"], "data_set")
        tables[f"{model}: change of each metric, with its interval over data sets"] = changes
        for data_set, of_set in own.groupby("data_set", sort=False):
            tables[f"{model}, {data_set}"] = table_of_means(of_set).reset_index()
            changes = table_of_changes(of_set, pairs, [primary], "fold")
            tables[f"{model}, {data_set}: change of {primary}, with its interval over folds"] = changes
        zeros = own[own["data_set"].isin(of_zeros)]
        supports = {one: compare(zeros, "support_f1", one, THRESHOLD, "data_set") for one in shown["supports"]}
        title = f"{model}: F1 of supports less that of {THRESHOLD}, over {', '.join(of_zeros)}"
        tables[title] = pd.DataFrame({"support": list(supports), "change": map(str, supports.values())})

        whole, f1 = compare(own, primary, contender, "softmax", "data_set"), supports[contender]
        verdict = whole.verdict("higher" if primary in HIGHER_IS_BETTER else "lower")
        seen = f"label distributions, {model} model", shown_as, "softmax"
        findings.append(Finding(*seen, verdict, f"{primary} {whole}", whole.units, settings["folds"]))
        seen = f"zeros of {seen[0]}", f"support of {shown_as}", THRESHOLD
        findings.append(Finding(*seen, f1.verdict("higher"), f"F1 {f1}", f1.units, settings["folds"]))
    return Report(tables, findings, shown["notes"])
