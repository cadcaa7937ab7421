"""A classifier trained by the Fenchel–Young loss of its output activation."""

import warnings
from collections.abc import Mapping, Sequence
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state, check_scalar
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
from torch import Tensor, nn

from sharmix._activation import Activation
from sharmix.activations import SharMiX
from sharmix.integrations.sklearn import _network
from sharmix.integrations.sklearn._network import Examples, Objective, class_logits
from sharmix.integrations.sklearn._weights import checked_weights
from sharmix.registry import build_activation

Array = NDArray[Any]

EPOCHS_WITHOUT_PROGRESS = 10  # after which Adam stops, as in scikit-learn's MLPClassifier


class FenchelYoungClassifier(ClassifierMixin, BaseEstimator):
    """A linear model, or a network of hidden layers, trained by the Fenchel–Young loss of its output activation.

        minimise  (Σᵢ sᵢ L(zᵢ, yᵢ) + α/2 Σ ‖W‖²) / Σᵢ sᵢ,      z = W x + b, or ReLU layers before it,

    where sᵢ is the weight of example i. The probabilities can be exactly 0. With q = r = 1 and no hidden layers the
    classifier is `LogisticRegression` with C = 1/α. For two classes there is one output x, with logits (−x/2, x/2).

    Args:
        q, r: the orders of SharMiX, used if `activation` is None. (1, 1) is softmax, r = q entmax, (2, 2) sparsemax.
        activation: an output activation other than SharMiX with q and r: a name or the path of a class, as for
            `build_activation`. `predict_proba` divides the outputs of α-ReLU by their sum, and gives equal
            probabilities where all of them are 0.
        activation_params: the parameters of the named activation. Learned parameters (of `sharmix_learned` and others)
            need `solver="adam"`, which trains them at the learning rate of the network.
        hidden_layer_sizes: the number of units of each hidden layer, a number or a tuple; () for a linear model.
        solver: `lbfgs` uses all examples at once and stops when the largest derivative is below `tol`. `adam` uses
            batches and stops when the loss has not fallen by `tol` for ten epochs.
        alpha: the strength of the L2 penalty on the weights, without the intercepts; at least 0.
        batch_size, learning_rate_init: the number of examples in a batch, and the learning rate, of Adam.
        max_iter, tol: the largest number of iterations of L-BFGS, or of epochs of Adam, and the tolerance of `solver`.
        class_weight, random_state: as for scikit-learn's own classifiers.

    Attributes:
        classes_: the labels, in order; 0, 1, … after a fit to probabilities.
        coefs_, intercepts_: the weights [inputs, outputs] and intercepts [outputs] of each layer, in the dtype of X.
        activation_: the output activation, a module, with its learned parameters.
        loss_: the final value of the minimised objective; for Adam the mean over its last epoch.
        n_iter_: the number of iterations or epochs.

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
        hidden_layer_sizes: int | Sequence[int] = (),
        solver: Literal["lbfgs", "adam"] = "lbfgs",
        alpha: float = 1.0,
        batch_size: int = 200,
        learning_rate_init: float = 0.001,
        max_iter: int = 200,
        tol: float = 1e-4,
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        random_state: Any = None,
    ) -> None:
        self.q = q
        self.r = r
        self.activation = activation
        self.activation_params = activation_params
        self.hidden_layer_sizes = hidden_layer_sizes
        self.solver = solver
        self.alpha = alpha
        self.batch_size = batch_size
        self.learning_rate_init = learning_rate_init
        self.max_iter = max_iter
        self.tol = tol
        self.class_weight = class_weight
        self.random_state = random_state

    @torch.inference_mode(False)  # training needs gradients, also if the caller is in inference mode
    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train the classifier from new first weights.

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
        examples = self._examples(X, y, sample_weight, None, first=True)
        self._start(examples)
        if self.solver == "lbfgs" and list(self.activation_.parameters()):
            raise ValueError(f"activation {self.activation_} learns parameters; that needs solver='adam'")
        fit = self._fit_by_lbfgs if self.solver == "lbfgs" else self._fit_by_adam
        if not fit(examples, self.max_iter):
            stopped = f"{self.solver} stopped after {self.n_iter_} iterations before it reached tol={self.tol}"
            remedy = f"increase max_iter={self.max_iter}, or scale the features"
            warnings.warn(f"{stopped}; {remedy}", ConvergenceWarning, stacklevel=3)  # past torch's decorator
        return self

    @torch.inference_mode(False)
    def partial_fit(
        self, X: Any, y: ArrayLike, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Train one epoch over these examples by Adam, whatever `solver` is; arguments as for `fit`.

        The penalty and `class_weight="balanced"` are computed from these examples alone. The first call needs
        `classes`, all labels of this and later calls, unless y holds probabilities.
        """
        self._check_parameters()
        first = not hasattr(self, "coefs_")
        if first and classes is None and (np.ndim(y) < 2 or np.shape(y)[1] == 1):
            raise ValueError("classes must be passed on the first call to partial_fit.")
        if not first and classes is not None and not np.array_equal(unique_labels(classes), self.classes_):
            raise ValueError(f"classes={classes!r} are not those of the first call, {self.classes_.tolist()}")
        examples = self._examples(X, y, sample_weight, classes, first)
        if first:
            self._start(examples)
        self._fit_by_adam(examples, 1)
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
        return p.detach().numpy()

    def predict(self, X: Any) -> Array:
        """The label with the largest logit for each example, [examples]."""
        logits = class_logits(self._outputs(X))
        return self.classes_[logits.argmax(-1).numpy()]

    @property
    def coef_(self) -> Array:
        """The weights of a linear model, [classes, features], or [1, features] for two classes."""
        return self._of_linear_model("coefs_").T

    @property
    def intercept_(self) -> Array:
        """The intercepts of a linear model, [classes], or [1] for two classes."""
        return self._of_linear_model("intercepts_")

    def _of_linear_model(self, name: str) -> Array:
        layers: Sequence[Array] = getattr(self, name, ())
        if len(layers) != 1:
            raise AttributeError(f"{name[:-2]}_ belongs to a fitted linear model; see {name}")
        return layers[0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _hidden_layer_sizes(self) -> tuple[int, ...]:
        sizes = self.hidden_layer_sizes
        return (sizes,) if isinstance(sizes, Real) else tuple(sizes)  # type: ignore[return-value,arg-type]

    def _check_parameters(self) -> None:
        if self.solver not in ("lbfgs", "adam"):
            raise ValueError(f"solver={self.solver!r} is not allowed; it must be 'lbfgs' or 'adam'")
        if not all(isinstance(size, Integral) and size > 0 for size in self._hidden_layer_sizes()):
            raise ValueError(f"hidden_layer_sizes={self.hidden_layer_sizes!r} is not allowed; each must be >= 1")
        if not isinstance(self.activation, str | None):
            raise TypeError(f"activation must be a name, its parameters activation_params; got {self.activation!r}")
        if self.activation is None and self.activation_params:
            raise ValueError(f"activation_params={self.activation_params!r} need the name of an activation")
        check_scalar(self.alpha, "alpha", Real, min_val=0)
        check_scalar(self.tol, "tol", Real, min_val=0)
        check_scalar(self.learning_rate_init, "learning_rate_init", Real, min_val=0, include_boundaries="neither")
        for name in ("alpha", "tol", "learning_rate_init"):
            if np.isnan(getattr(self, name)):
                raise ValueError(f"{name}=nan is not allowed; it must be a number")
        check_scalar(self.max_iter, "max_iter", Integral, min_val=1)
        check_scalar(self.batch_size, "batch_size", Integral, min_val=1)

    def _examples(
        self, X: Any, y: Any, sample_weight: ArrayLike | None, classes: ArrayLike | None, first: bool
    ) -> Examples:
        """The checked examples; in the first call, `classes_` is set from `classes` or from y."""
        dtype = (np.float64, np.float32) if first else self.coefs_[0].dtype
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=dtype, multi_output=True, reset=first)
        y = column_or_1d(y, warn=True) if y.ndim == 2 and y.shape[1] == 1 else y
        if y.ndim == 1:
            check_classification_targets(y)
        seen = unique_labels(y) if y.ndim == 1 else np.arange(y.shape[1])
        if first:
            self.classes_ = seen if classes is None else unique_labels(classes)
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class, {self.classes_.tolist()[0]!r}; a classifier needs at least two classes")
        weights = checked_weights(sample_weight, X)
        if y.ndim == 1:
            if len(unknown := np.setdiff1d(y, self.classes_)):
                raise ValueError(f"y has classes {unknown.tolist()} that are not among {self.classes_.tolist()}")
            targets = np.searchsorted(self.classes_, y)
            of_classes = self._class_weights(np.bincount(targets, weights, len(self.classes_)))
            weights = weights * of_classes[targets]
        else:
            targets = _checked_distributions(y, len(self.classes_))
            of_classes = self._class_weights(weights @ targets)
            shares = targets @ of_classes
            weighted = targets * of_classes / np.where(shares > 0, shares, 1)[:, None]
            targets = np.where(shares[:, None] > 0, weighted, targets).astype(X.dtype)  # a row of weight 0 as it is
            weights = weights * shares
        return Examples(X, torch.from_numpy(targets), torch.from_numpy(weights.astype(X.dtype)))

    def _class_weights(self, counts: Array) -> Array:
        """One weight for each class; `balanced` gives all classes the same total weight."""
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            return np.where(counts > 0, counts.sum() / (len(counts) * np.where(counts > 0, counts, 1)), 0)
        weights: Array = compute_class_weight(self.class_weight, classes=self.classes_, y=self.classes_)
        if not (weights >= 0).all() or not weights @ counts > 0:
            needed = "each weight must be at least 0, and that of at least one class in y above 0"
            raise ValueError(f"class_weight={self.class_weight!r} is not allowed; {needed}")
        return weights

    def _start(self, examples: Examples) -> None:
        """Make a new activation and the first weights: 0 for a linear model, else as in Glorot and Bengio (2010)."""
        if self.activation is None:
            self.activation_: Activation = SharMiX(self.q, self.r)
        else:
            self.activation_ = build_activation(self.activation, **(self.activation_params or {}))
        self._random_state = check_random_state(self.random_state)
        outputs = len(self.classes_) if len(self.classes_) > 2 else 1
        sizes = [examples.features.shape[1], *self._hidden_layer_sizes(), outputs]
        self.coefs_: list[Array] = []
        self.intercepts_: list[Array] = []
        for fan_in, fan_out in pairwise(sizes):
            bound = (6 / (fan_in + fan_out)) ** 0.5 if len(sizes) > 2 else 0.0
            weights = self._random_state.uniform(-bound, bound, (fan_in, fan_out))
            self.coefs_.append(weights.astype(examples.features.dtype))
            self.intercepts_.append(np.zeros(fan_out, examples.features.dtype))
        self.n_iter_ = 0
        self._adam_state: dict[str, Any] | None = None

    def _layers(self) -> list[Array]:
        return [part for layer in zip(self.coefs_, self.intercepts_, strict=True) for part in layer]

    def _fit_by_lbfgs(self, examples: Examples, max_iter: int) -> bool:
        """Minimise by L-BFGS; whether it reached `tol`."""
        objective = Objective(self.activation_, self.alpha, examples.weights.sum().item())
        layers, found = _network.minimise_by_lbfgs(objective, examples, self._layers(), max_iter, self.tol)
        self.coefs_, self.intercepts_ = layers[::2], layers[1::2]
        self.loss_, self.n_iter_ = found.fun, found.nit
        self._check_loss("alpha")
        return bool(found.success)

    def _fit_by_adam(self, examples: Examples, epochs: int) -> bool:
        """Train by Adam; whether the loss stopped falling within these epochs."""
        objective = Objective(self.activation_, self.alpha, examples.weights.sum().item())
        layers = [nn.Parameter(torch.tensor(layer)) for layer in self._layers()]
        optimizer = torch.optim.Adam([*layers, *self.activation_.parameters()], lr=self.learning_rate_init)
        if self._adam_state is not None:
            optimizer.load_state_dict(self._adam_state)
            optimizer.param_groups[0]["lr"] = self.learning_rate_init
        best, waited = np.inf, 0
        for _ in range(epochs):
            order = self._random_state.permutation(len(examples))
            batches = np.split(order, range(self.batch_size, len(order), self.batch_size))
            self.loss_ = _network.epoch(objective, examples, layers, optimizer, batches)
            self.n_iter_ += 1
            waited = 0 if self.loss_ < best - self.tol else waited + 1
            best = min(best, self.loss_)
            if waited == EPOCHS_WITHOUT_PROGRESS:
                break
        arrays = [layer.detach().numpy() for layer in layers]
        self.coefs_, self.intercepts_ = arrays[::2], arrays[1::2]
        self._adam_state = optimizer.state_dict()
        self._check_loss("learning_rate_init", "alpha")
        return waited == EPOCHS_WITHOUT_PROGRESS

    def _check_loss(self, *strengths: str) -> None:
        if not np.isfinite([self.loss_, *(layer.sum() for layer in self._layers())]).all():
            lower = " or ".join(f"{name}={getattr(self, name)}" for name in strengths)
            remedy = f"lower {lower}, or scale the features"
            raise ValueError(f"the loss or a weight is not finite after {self.n_iter_} iterations; {remedy}")

    @torch.no_grad()
    def _outputs(self, X: Any) -> Tensor:
        check_is_fitted(self)
        features = validate_data(self, X, accept_sparse="csr", dtype=self.coefs_[0].dtype, reset=False)
        return _network.network_outputs(features, [torch.from_numpy(layer) for layer in self._layers()])


def _checked_distributions(y: Array, classes: int) -> Array:
    rows = np.asarray(y, np.float64)
    if rows.shape[1] != classes:
        raise ValueError(f"y of shape {rows.shape} is not allowed; there are {classes} classes, one for each column")
    sums = rows.sum(1)
    if (rows < 0).any() or not np.allclose(sums, 1, atol=1e-3):
        found = f"got a least value of {rows.min():g} and sums from {sums.min():g} to {sums.max():g}"
        raise ValueError(f"y of shape {rows.shape} must be probabilities, at least 0, in rows that sum to 1; {found}")
    return rows / sums[:, None]
