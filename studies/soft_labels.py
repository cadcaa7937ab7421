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

from sharmix.integrations.sklearn import FenchelYoungClassifier
from studies.class_sets import best_threshold, mean_f1
from studies.comparison import Comparison, compare
from studies.distribution_distances import Distributions, distribution_distances
from studies.public_files import read_public_file
from studies.study import Finding, Report, Row, Settings, Task

HIGHER_IS_BETTER = ("cosine", "intersection", "support_f1")
THRESHOLD = "softmax, threshold"  # the support alone: classes whose probability reaches a threshold


def tasks(settings: Settings, data: Path | None) -> list[Task]:
    return [
        {"data_set": data_set, "model": model, "fold": fold}
        for data_set, model, fold in product(settings["data_sets"], settings["models"], range(settings["folds"]))
    ]


def measure(task: Task, settings: Settings, data: Path | None) -> list[Row]:
    arrays = loadmat(BytesIO(read_public_file(data, settings["data_sets"][task["data_set"]])))
    targets = arrays["labels"] / arrays["labels"].sum(-1, keepdims=True)  # some sum to 1 in float32 alone
    folds = KFold(settings["folds"], shuffle=True, random_state=settings["seed"])
    train, test = list(folds.split(targets))[task["fold"]]
    features = arrays["features"]
    components = min(settings["components"], *features[train].shape)
    reduced = make_pipeline(StandardScaler(), PCA(components, random_state=settings["seed"])).fit(features[train])
    x = reduced.transform(features).astype(np.float32)
    x /= x[train].std()
    fitted_on, chosen_on = train_test_split(train, test_size=settings["validation_share"], random_state=task["fold"])

    model = settings["models"][task["model"]]

    def fitted(candidate: Settings, penalty: float, rows: NDArray[np.int64]) -> FenchelYoungClassifier:
        classifier = FenchelYoungClassifier(
            activation=candidate["activation"],
            activation_params=candidate.get("parameters"),
            hidden_layer_sizes=model["hidden_layer_sizes"],
            alpha=penalty * len(rows),
            random_state=settings["seed"],
            **settings["solver"],
        )
        with warnings.catch_warnings():  # all contenders have the same number of iterations
            warnings.simplefilter("ignore", ConvergenceWarning)
            return classifier.fit(x[rows], targets[rows])

    rows = []
    for contender, candidates in settings["contenders"].items():
        tried = []
        for candidate, penalty in product(candidates, model["penalties"]):
            predicted = _predicted(fitted(candidate, penalty, fitted_on), x[chosen_on])
            score = distribution_distances(targets[chosen_on], predicted)[settings["primary"]]
            tried.append((score if settings["primary"] in HIGHER_IS_BETTER else -score, candidate, penalty, predicted))
        _, candidate, penalty, validated = max(tried, key=lambda one: one[0])
        predicted = _predicted(fitted(candidate, penalty, train), x[test])
        values = distribution_distances(targets[test], predicted)
        values |= {"zeros": float((predicted == 0).mean()), "penalty": penalty}
        values |= candidate.get("parameters", {})
        rows += [{"contender": contender, "metric": name, "value": value} for name, value in values.items()]
        if contender == "softmax":
            threshold, _ = best_threshold(validated, targets[chosen_on] > 0)
            f1 = mean_f1(predicted >= threshold, targets[test] > 0)
            rows.append({"contender": THRESHOLD, "metric": "support_f1", "value": f1})
    return rows


def _predicted(classifier: FenchelYoungClassifier, x: NDArray[np.float32]) -> Distributions:
    """The distributions in float64, where rounding does not matter."""
    p = classifier.predict_proba(x).astype(np.float64)
    return p / p.sum(-1, keepdims=True)


def report(records: pd.DataFrame, settings: Settings, shown: Settings) -> Report:
    confidence = shown["confidence"]
    primary, pairs = settings["primary"], shown["compared"]
    tables, findings = {}, []
    for model, own in records.groupby("model", sort=False):
        tables[f"{model}: change of each metric, with its interval over data sets"] = pd.DataFrame(
            {"change": f"{one} against {other}"}
            | {metric: str(compare(own, metric, one, other, "data_set", confidence)) for metric in shown["metrics"]}
            for one, other in pairs
        )
        for data_set, of_set in own.groupby("data_set", sort=False):
            means = of_set.groupby(["contender", "metric"], sort=False)["value"].mean().unstack("metric")
            changes = {
                f"{one} against {other}": str(compare(of_set, primary, one, other, "fold", confidence))
                for one, other in pairs
            }
            written = means.map(lambda value: "" if np.isnan(value) else f"{value:.4f}").reset_index()
            tables[f"{model}, {data_set}"] = written
            tables[f"{model}, {data_set}: change of {primary}, with its interval over folds"] = pd.DataFrame([changes])
        zeros = own[own["data_set"].isin(shown["with_zeros"])]
        supports = {
            one: compare(zeros, "support_f1", one, THRESHOLD, "data_set", confidence) for one in shown["supports"]
        }
        title = f"{model}: F1 of supports less that of {THRESHOLD}, over {', '.join(shown['with_zeros'])}"
        tables[title] = pd.DataFrame([{one: str(found) for one, found in supports.items()}])
        findings += _findings(model, own, supports, settings, shown)
    return Report(tables, findings, shown["notes"])


def _findings(
    model: str, records: pd.DataFrame, supports: dict[str, Comparison], settings: Settings, shown: Settings
) -> list[Finding]:
    """Compares a contender's distributions, and their zeros, with softmax's."""
    [(one, shown_as)] = shown["found"].items()
    primary, folds = settings["primary"], settings["folds"]
    whole = compare(records, primary, one, "softmax", "data_set", shown["confidence"])
    zeros = supports[one]
    verdict = whole.verdict("higher" if primary in HIGHER_IS_BETTER else "lower")
    use, of_zeros = f"label distributions, {model} model", f"zeros of label distributions, {model} model"
    support, f1, verdict_of_zeros = f"support of {shown_as}", f"F1 {zeros}", zeros.verdict("higher")
    return [
        Finding(use, shown_as, "softmax", verdict, f"{primary} {whole}", whole.units, folds),
        Finding(of_zeros, support, THRESHOLD, verdict_of_zeros, f1, zeros.units, folds),
    ]
