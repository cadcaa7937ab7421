"""A linear classifier trained by the Fenchel–Young loss of its output activation."""

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_scalar
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
from torch import Tensor

from sharmix._activation import Activation
from sharmix._warn import warn
from sharmix.activations import SharMiX
from sharmix.integrations.sklearn import _linear_model
from sharmix.integrations.sklearn._linear_model import Objective, class_logits
from sharmix.integrations.sklearn._weights import checked_weights
from sharmix.registry import build_activation

Array = NDArray[Any]


class FenchelYoungClassifier(ClassifierMixin, BaseEstimator):
    """A linear model trained by the Fenchel–Young loss of its output activation.

        minimise  (Σᵢ sᵢ L(zᵢ, yᵢ) + α/2 ‖W‖²) / Σᵢ sᵢ,      z = W x + b,

    where sᵢ is the weight of example i. The probabilities can be exactly 0. With q = r = 1 the classifier is
    `LogisticRegression` with C = 1/α. For two classes there is one output x, with logits (−x/2, x/2).

    Args:
        q, r: the orders of SharMiX, used if `activation` is None. (1, 1) is softmax, r = q entmax, (2, 2) sparsemax.
        activation: an output activation other than SharMiX with q and r: a name or the path of a class, as for
            `build_activation`. `predict_proba` divides the outputs of α-ReLU by their sum, and gives equal
            probabilities where all of them are 0.
        activation_params: the parameters of the named activation. Activations that learn parameters, such as
            `sharmix_learned`, are not allowed.
        alpha: the strength of the L2 penalty on the weights, without the intercepts; at least 0.
        max_iter: the largest number of iterations of the solver, L-BFGS.
        tol: the solver stops when the largest derivative is below this number.
        class_weight: as for scikit-learn's own classifiers.

    Attributes:
        classes_: the labels, in order; 0, 1, … after a fit to probabilities.
        coef_: W, [classes, features], or [1, features] for two classes, in the dtype of X.
        intercept_: b, [classes], or [1] for two classes.
        activation_: the output activation, a module.
        loss_: the final value of the minimised objective.
        n_iter_: the number of iterations.

    Source: Blondel, Martins and Niculae (2020), Learning with Fenchel–Young losses.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> classifier = FenchelYoungClassifier(q=1.5, r=2.0).fit(X, y)
        >>> classifier.predict_proba(X[[0, 75, 100]]).round(2)
        array([[1.  , 0.  , 0.  ],
               [0.  , 0.97, 0.03],
               [0.  , 0.  , 1.  ]])
    """

    def __init__(
        self,
        q: float = 1.25,
        r: float = 1.5,
        *,
        activation: str | None = None,
        activation_params: Mapping[str, Any] | None = None,
        alpha: float = 1.0,
        max_iter: int = 200,
        tol: float = 1e-4,
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
    ) -> None:
        self.q = q
        self.r = r
        self.activation = activation
        self.activation_params = activation_params
        self.alpha = alpha
        self.max_iter = max_iter
        self.tol = tol
        self.class_weight = class_weight

    @torch.inference_mode(False)  # training needs gradients, also if the caller is in inference mode
    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train the classifier.

        Args:
            X: features [examples, features], dense or sparse, float32 or float64.
            y: labels [examples], or probabilities [examples, classes] whose rows sum to 1. After a fit to probabilities
                `predict` returns the index of a column; scikit-learn's own scores and `cross_val_predict` need labels.
            sample_weight: the weight of each example, [examples]; None gives each the weight 1.

        Raises:
            ValueError, TypeError: a parameter, a shape or a value is not allowed.

        Warns:
            ConvergenceWarning: the solver stopped at `max_iter`, before it reached `tol`.
        """
        self._check_parameters()
        activation = self._new_activation()
        objective = Objective(activation, *self._examples(X, y, sample_weight), self.alpha)
        width = len(self.classes_) if len(self.classes_) > 2 else 1
        coefficients, intercepts, found = objective.minimum(width, self.max_iter, self.tol)
        if not np.isfinite([found.fun, coefficients.sum(), intercepts.sum()]).all():
            raise ValueError(f"the loss or a weight is not finite after {found.nit} iterations; scale the features")
        self.coef_, self.intercept_, self.activation_ = coefficients.T, intercepts, activation
        self.loss_, self.n_iter_ = found.fun, found.nit
        if not found.success:
            stopped = f"L-BFGS stopped after {self.n_iter_} iterations before it reached tol={self.tol}"
            remedy = f"increase max_iter={self.max_iter}, or scale the features"
            warn(f"{stopped}; {remedy}", ConvergenceWarning)
        return self

    def decision_function(self, X: Any) -> Array:
        """The logits [examples, classes]; for two classes the second logit minus the first, [examples]."""
        outputs = self._outputs(X).numpy()
        return outputs[:, 0] if len(self.classes_) == 2 else outputs

    def predict_proba(self, X: Any) -> Array:
        """The probabilities [examples, classes], in the order of `classes_`."""
        logits = class_logits(self._outputs(X))  # first: it raises for a classifier that is not fitted
        p: Tensor = self.activation_(logits)
        if not self.activation_.normalised:
            total = p.sum(-1, keepdim=True)
            p = torch.where(total > 0, p / total, 1 / p.shape[-1])
        return p.numpy()

    def predict(self, X: Any) -> Array:
        """The label with the largest logit for each example, [examples]."""
        logits = class_logits(self._outputs(X))
        return self.classes_[logits.argmax(-1).numpy()]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _check_parameters(self) -> None:
        if not isinstance(self.activation, str | None):
            raise TypeError(f"activation must be a name, its parameters activation_params; got {self.activation!r}")
        if self.activation is None and self.activation_params:
            raise ValueError(f"activation_params={self.activation_params!r} need the name of an activation")
        for name in ("alpha", "tol"):
            check_scalar(getattr(self, name), name, Real, min_val=0)
            if np.isnan(getattr(self, name)):
                raise ValueError(f"{name}=nan is not allowed; it must be a number")
        check_scalar(self.max_iter, "max_iter", Integral, min_val=1)

    def _new_activation(self) -> Activation:
        if self.activation is None:
            return SharMiX(self.q, self.r)
        activation = build_activation(self.activation, **(self.activation_params or {}))
        if learned := [name for name, _ in activation.named_parameters()]:
            raise ValueError(f"{activation} learns {', '.join(learned)}, which this classifier does not train")
        return activation

    def _examples(self, X: Any, y: Any, sample_weight: ArrayLike | None) -> tuple[Any, Tensor, Tensor]:
        """The checked features, targets and weights; sets `classes_`."""
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=(np.float64, np.float32), multi_output=True)
        y = column_or_1d(y, warn=True) if y.ndim == 2 and y.shape[1] == 1 else y
        if y.ndim == 1:
            check_classification_targets(y)
        self.classes_ = unique_labels(y) if y.ndim == 1 else np.arange(y.shape[1])
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class, {self.classes_.tolist()[0]!r}; a classifier needs at least two classes")
        weights = checked_weights(sample_weight, X)
        if y.ndim == 1:
            targets = np.searchsorted(self.classes_, y)
            of_classes = self._class_weights(np.bincount(targets, weights, len(self.classes_)))
            weights = weights * of_classes[targets]
        else:
            targets = _checked_distributions(y)
            of_classes = self._class_weights(weights @ targets)
            shares = targets @ of_classes
            weighted = targets * of_classes / np.where(shares > 0, shares, 1)[:, None]
            targets = np.where(shares[:, None] > 0, weighted, targets).astype(X.dtype)  # a row of weight 0 as it is
            weights = weights * shares
        return X, torch.from_numpy(targets), torch.from_numpy(weights.astype(X.dtype))

    def _class_weights(self, counts: Array) -> Array:
        """One weight for each class; `balanced` gives all classes the same total weight."""
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            return np.where(counts > 0, counts.sum() / (len(counts) * np.where(counts > 0, counts, 1)), 0)
        weights: Array = compute_class_weight(self.class_weight, classes=self.classes_, y=self.classes_)
        if not (weights >= 0).all() or not weights @ counts > 0:
            needed = "each weight must be at least 0, and that of at least one class in y above 0"
            raise ValueError(f"class_weight={self.class_weight!r} is not allowed; {needed}")
        return weights

    def _outputs(self, X: Any) -> Tensor:
        check_is_fitted(self)
        features = validate_data(self, X, accept_sparse="csr", dtype=self.coef_.dtype, reset=False)
        return _linear_model.outputs(features, torch.from_numpy(self.coef_.T), torch.from_numpy(self.intercept_))


def _checked_distributions(y: Array) -> Array:
    rows = np.asarray(y, np.float64)
    sums = rows.sum(1)
    if (rows < 0).any() or not np.allclose(sums, 1, atol=1e-3):
        found = f"got a least value of {rows.min():g} and sums from {sums.min():g} to {sums.max():g}"
        raise ValueError(f"y of shape {rows.shape} must be probabilities, at least 0, in rows that sum to 1; {found}")
    return rows / sums[:, None]
