"""A classifier whose probabilities are calibrated on examples that it was not fitted to."""

import warnings
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv, cross_val_predict
from sklearn.utils import column_or_1d, get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from sharmix.sklearn.scaling import SharMiXScaling

Array = NDArray[Any]

LEAST_PROBABILITY = 1e-12  # what scikit-learn's temperature scaling adds before it takes logarithms


class SharMiXCalibrator(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """A classifier whose outputs `SharMiXScaling` calibrates, with a temperature, q and r.

    The procedure is that of `CalibratedClassifierCV(method="temperature", ensemble=False)`. Cross-validation computes
    the output for each example with a copy of the classifier that was not fitted to this example. The scaling is
    fitted to these outputs, and the classifier to all examples. Wrap a classifier that is already fitted in a
    `FrozenEstimator`: all examples then fit the scaling, so give examples that the classifier was not fitted to. There
    is no ensemble, since a mean of sparse probabilities is 0 only where all of them are 0.

    If the classifier has a `decision_function`, its outputs are the logits; a single output x gives the logits (0, x).
    Otherwise the logits are the logarithms of `predict_proba` + 1e-12.

    Args:
        estimator: the classifier.
        q, r, temperature, loss: as for `SharMiXScaling`. The scaling fits an argument that is None, and keeps a number;
            r may also be `"q"`.
        cv: the cross-validation, as for `CalibratedClassifierCV`; None means five folds. `"prefit"`, which
            `CalibratedClassifierCV` once had, is not allowed: wrap the fitted classifier in a `FrozenEstimator`.
        n_jobs: the number of processes for cross-validation.

    Attributes:
        classes_: the labels, in order.
        estimator_: the fitted classifier.
        scaling_: the fitted `SharMiXScaling`, with `q_`, `r_`, `temperature_` and `loss_`.
        n_features_in_, feature_names_in_: the attributes of the fitted classifier, if it has them.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.naive_bayes import GaussianNB
        >>> X, y = load_iris(return_X_y=True)
        >>> calibrator = SharMiXCalibrator(GaussianNB(), r="q").fit(X, y)
        >>> round(calibrator.scaling_.temperature_, 2), round(calibrator.scaling_.q_, 2)
        (3.18, 1.44)
        >>> calibrator.predict_proba(X[[0, 70]]).round(2)
        array([[1.  , 0.  , 0.  ],
               [0.  , 0.32, 0.68]])
    """

    def __init__(
        self,
        estimator: Any,
        *,
        q: float | None = None,
        r: float | Literal["q"] | None = None,
        temperature: float | None = None,
        loss: Literal["brier", "log"] = "brier",
        cv: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.q = q
        self.r = r
        self.temperature = temperature
        self.loss = loss
        self.cv = cv
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the classifier and its scaling.

        Args:
            X: features [examples, features], in a form that the classifier's `fit` accepts.
            y: labels [examples].
            sample_weight: the weight of each example, [examples]; None gives each the weight 1. The scaling uses the
                weights, and so does the classifier if its `fit` accepts them; with scikit-learn's metadata routing, if
                it requests them.

        Returns:
            This calibrator.

        Raises:
            ValueError: a parameter or a label is not allowed, a class has too few examples to cross-validate, or the
                classifier does not give one output for each class, such as `SVC(decision_function_shape="ovo")`.

        Warns:
            UserWarning: the classifier's `fit` does not accept weights; only the scaling uses them.
        """
        if isinstance(self.cv, str):
            raise ValueError(
                f"cv={self.cv!r} is not allowed; a classifier that is fitted already comes in a "
                "sklearn.frozen.FrozenEstimator"
            )
        check_classification_targets(y)
        X, y = indexable(X, y)
        labels = column_or_1d(y, warn=True)
        if isinstance(self.estimator, FrozenEstimator):
            self.estimator_ = self.estimator
            outputs = getattr(self.estimator_, _method(self.estimator_))(X)
        else:
            weights = self._weights_of_estimator(sample_weight)
            cv = check_cv(self.cv, labels, classifier=True)
            folds = cv.n_splits if self.cv is not None and hasattr(cv, "n_splits") else 1
            if np.unique(labels, return_counts=True)[1].min() < folds:
                raise ValueError(
                    f"cv={self.cv!r} makes {folds} folds, but there are fewer examples of at least one class"
                )
            outputs = cross_val_predict(
                clone(self.estimator),
                X,
                labels,
                cv=cv,
                method=_method(self.estimator),
                n_jobs=self.n_jobs,
                params=weights,
            )
            self.estimator_ = clone(self.estimator).fit(X, labels, **weights)
        self.classes_ = self.estimator_.classes_
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        unknown = np.setdiff1d(labels, self.classes_)
        if len(unknown):
            raise ValueError(f"y has classes {unknown.tolist()} that {self.estimator_} was not fitted to")
        self.scaling_ = SharMiXScaling(q=self.q, r=self.r, temperature=self.temperature, loss=self.loss)
        self.scaling_.fit(self._logits(outputs), np.searchsorted(self.classes_, labels), sample_weight)
        return self

    def predict_proba(self, X: Any) -> Array:
        """The calibrated probabilities [examples, classes], in the order of `classes_`."""
        check_is_fitted(self)
        return self.scaling_.transform(self._logits(getattr(self.estimator_, _method(self.estimator_))(X)))

    def predict(self, X: Any) -> Array:
        """The most probable label of each example, [examples]."""
        check_is_fitted(self)
        labels: Array = self.classes_[self.predict_proba(X).argmax(1)]
        return labels

    def get_metadata_routing(self) -> MetadataRouter:
        """The routes of scikit-learn's metadata routing: `fit` passes sample weights on to the classifier's `fit`."""
        mapping = MethodMapping().add(caller="fit", callee="fit")
        router = MetadataRouter(owner=self).add_self_request(self)
        return router.add(estimator=self.estimator, method_mapping=mapping)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self.estimator).input_tags
        return tags

    def _weights_of_estimator(self, sample_weight: ArrayLike | None) -> dict[str, ArrayLike]:
        """The keyword arguments, weights or none, for the classifier's own `fit`."""
        if sample_weight is None:
            return {}
        if get_config()["enable_metadata_routing"]:
            requested: dict[str, ArrayLike] = process_routing(self, "fit", sample_weight=sample_weight).estimator.fit
            return requested
        if has_fit_parameter(self.estimator, "sample_weight"):
            return {"sample_weight": sample_weight}
        warnings.warn(
            f"{type(self.estimator).__name__} does not take sample_weight; the weights serve its scaling alone",
            UserWarning,
            stacklevel=3,
        )
        return {}

    def _logits(self, outputs: Array) -> Array:
        """Logits [examples, classes] from the outputs of the classifier."""
        if _method(self.estimator_) == "predict_proba":
            logits: Array = np.log(outputs + LEAST_PROBABILITY)
            return logits
        logits = np.stack([np.zeros_like(outputs), outputs], 1) if outputs.ndim == 1 else outputs
        if logits.shape[1] != len(self.classes_):
            raise ValueError(
                f"{self.estimator_} has {logits.shape[1]} outputs for {len(self.classes_)} classes; allowed is one each"
            )
        return logits


def _method(estimator: Any) -> str:
    return "decision_function" if hasattr(estimator, "decision_function") else "predict_proba"
