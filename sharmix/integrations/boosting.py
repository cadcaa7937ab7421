"""Boosted trees with sparse probabilities: an objective for LightGBM and XGBoost, and a metric for LightGBM."""

import copy
import inspect
import math
from collections.abc import Iterator
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from sharmix._activation import Activation
from sharmix._mathematics.sensitivity import logit_diagonal
from sharmix._scores import proper_score
from sharmix.activations import SharmaMittal, Softmax
from sharmix.registry import build_activation

try:
    import numpy as np
except ImportError as error:
    raise ImportError(
        "this module needs LightGBM or XGBoost: pip install 'sharmix[lightgbm]' or 'sharmix[xgboost]'"
    ) from error

__all__ = ["LightGBMMetric", "Objective"]

Array = np.ndarray[Any, np.dtype[Any]]
Kind = Literal["fenchel_young", "brier"]

_BLOCK = 2**15  # raw scores in one block of rows, so that all intermediate results stay in the cache


class Objective:
    """The Fenchel–Young loss of an activation, as an objective of LightGBM and XGBoost.

        gradient = w (p − y),      Hessian = w max(diag ∂p/∂z, floor),      p = activation(z), z the raw scores

    where w is the weight of the row. Use one object in each of
    `lightgbm.train({"objective": objective, "num_class": classes}, …)`,
    `LGBMClassifier(objective=objective, metric="none")`, `xgboost.train({"num_class": classes}, …, obj=objective)` and
    `XGBClassifier(objective=objective)`. The trained models do not know the activation, so predict with this object:

        probabilities = objective.predict_proba(model, features)
        labels = model.classes_[probabilities.argmax(-1)]

    and give `GridSearchCV` and `cross_val_score` a `scoring` that does the same.

    Two classes need two raw scores for each row: give `num_class=2`, also to the classifiers, and give `XGBClassifier`
    `disable_default_eval_metric=True`, too. Labels are 0 to classes − 1; only `LGBMClassifier` allows other labels.

    Args:
        activation: an activation module, or a name that `build_activation` accepts. Boosting trains only the trees: the
            parameters of a module keep their values, and must not require gradients. The outputs of α-ReLU are no
            probabilities: they need not sum to 1.
        hessian_floor: the least second derivative for a row and class. The derivative is 0 for a class of probability
            0, and a leaf that holds only such rows would take an infinite step. With the floor a step is at most
            1/floor before the learning rate. Give XGBoost `min_child_weight=0`: with its default 1 a leaf would need a
            thousand such rows.
        **parameters: the parameters of the named activation, such as q and r.

    Shape:
        raw scores [n, classes], float32 or float64, by rows (XGBoost) or by columns (LightGBM), read without a copy;
        gradient and Hessian [n, classes], float32, which both packages read without a copy.

    Raises:
        TypeError, ValueError: an argument, a label, a shape or a raw score is not allowed.

    Source: docs/math.md, sections 4 and 5. To grow the trees of the packages' own objectives: docs/other_libraries.md.

    Example:
        >>> import numpy, xgboost
        >>> from sharmix.integrations.boosting import Objective
        >>> objective = Objective("sharmix_fixed", q=1.25, r=1.5)
        >>> features, labels = numpy.arange(90.0)[:, None], numpy.repeat([0, 1, 2], 30)
        >>> model = xgboost.XGBClassifier(objective=objective, n_estimators=9, n_jobs=1).fit(features, labels)
        >>> objective.predict_proba(model, features)[0].round(2)
        array([0.99, 0.01, 0.  ], dtype=float32)
    """

    def __init__(
        self, activation: Activation | str = "sharmix_fixed", *, hessian_floor: float = 1e-3, **parameters: Any
    ) -> None:
        if isinstance(activation, str):
            activation = build_activation(activation, **parameters)
        elif parameters:
            raise ValueError(f"{', '.join(parameters)} cannot be given beside a module, which has its parameters")
        if not 0 < hessian_floor < math.inf:
            raise ValueError(f"hessian_floor={hessian_floor!r} is not allowed; it must be finite and > 0")
        self.activation = _fixed(activation)
        self.hessian_floor = hessian_floor

    def __call__(self, labels: Any, raw_scores: Any, sample_weight: Array | None = None) -> tuple[Array, Array]:
        """Gradient and Hessian, float32 [n, classes], from labels and raw scores, or raw scores and the data set."""
        raw_scores, labels, weight = _scores_labels_and_weights(labels, raw_scores, sample_weight)
        gradient, hessian = np.empty_like(raw_scores, np.float32), np.empty_like(raw_scores, np.float32)
        for z, y, w, of_gradient, of_hessian in _blocks(raw_scores, labels, weight, gradient, hessian):
            p, diagonal = self._derivatives(z)
            if (wrong := p.isnan().any(-1)).any():  # the packages would use a gradient of NaN without a warning
                cause = "scores that the model starts from (init_score, base_margin, base_score) must be finite"
                raise ValueError(f"raw scores {z[wrong][0].tolist()} of a row have no probabilities; {cause}")
            error = p.scatter_add(-1, _classes(y, p).unsqueeze(-1), -torch.ones_like(p[:, :1]))
            of_gradient.copy_(error * w.unsqueeze(-1))
            of_hessian.copy_(diagonal.clamp_min(self.hessian_floor) * w.unsqueeze(-1))
        return gradient, hessian

    def probabilities(self, raw_scores: Array) -> Array:
        """The activation's output for raw scores [n, classes], with their shape and dtype."""
        _check(raw_scores)
        probabilities = np.empty_like(raw_scores)
        for z, p in _blocks(raw_scores, probabilities):
            p.copy_(self.activation(z))
        return probabilities

    def predict_proba(self, model: Any, features: Any, **options: Any) -> Array:
        """The probabilities [n, classes] of a Booster or classifier that was trained with this objective.

        `features` and `options` are arguments of `model.predict`. After early stopping, every model predicts with its
        best round except `xgboost.Booster`, which needs `iteration_range=(0, model.best_iteration + 1)`.

        Raises:
            TypeError: the model is of another package.
        """
        taken = inspect.signature(model.predict).parameters
        raw = next((name for name in ("raw_score", "output_margin") if name in taken), None)
        if raw is None:
            raise TypeError(f"model must be a Booster or classifier of LightGBM or XGBoost, got {type(model).__name__}")
        return self.probabilities(model.predict(features, **{raw: True}, **options))

    def _derivatives(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """p, which is the derivative of the conjugate, and the diagonal of ∂p/∂z, both [n, classes]."""
        if isinstance(self.activation, SharmaMittal | Softmax):
            orders = (1.0, 1.0, 1.0) if isinstance(self.activation, Softmax) else self.activation.orders()
            p = self.activation(logits)
            return p, logit_diagonal(p.double(), *map(float, orders))
        logits = logits.clone().requires_grad_()
        p = self.activation(logits)
        rows = [torch.autograd.grad(p_k.sum(), logits, retain_graph=True)[0] for p_k in p.unbind(-1)]
        return p.detach(), torch.stack(rows).diagonal(dim1=0, dim2=-1)

    def __repr__(self) -> str:
        return f"Objective({self.activation}, hessian_floor={self.hessian_floor:g})"


class LightGBMMetric:
    """A metric of an `Objective` for `lightgbm.train(feval=metric)` and `LGBMClassifier.fit(eval_metric=metric)`.

    Give LightGBM `metric="none"`, too: its own metrics read the raw scores of a custom objective as probabilities, and
    early stopping uses all metrics.

    The `kind` is `brier`, Σ (pᵢ − yᵢ)², which compares activations, or `fenchel_young`, which training minimises.

    Example:
        >>> import numpy, lightgbm
        >>> from sharmix.integrations.boosting import LightGBMMetric, Objective
        >>> objective = Objective("entmax", alpha=1.5)
        >>> data = lightgbm.Dataset(numpy.arange(90.0)[:, None], numpy.repeat([0, 1, 2], 30))
        >>> settings = {"objective": objective, "num_class": 3, "metric": "none", "num_threads": 1, "verbosity": -1}
        >>> model = lightgbm.train(settings, data, 9, valid_sets=[data], feval=LightGBMMetric(objective))
        >>> round(model.best_score["training"]["brier"], 2)
        0.06
    """

    def __init__(self, objective: Objective, kind: Kind = "brier") -> None:
        if not isinstance(objective, Objective):
            raise TypeError(f"objective must be the Objective that the model is trained with, got {objective!r}")
        if kind not in get_args(Kind):
            raise ValueError(f"kind={kind!r} is not allowed; it must be one of {', '.join(get_args(Kind))}")
        self.objective = objective
        self.kind: Kind = kind

    def __call__(
        self, labels: Any, raw_scores: Any, sample_weight: Array | None = None
    ) -> tuple[str, float, Literal[False]]:
        """The name, the value, and False, since a higher value is not better."""
        raw_scores, labels, weight = _scores_labels_and_weights(labels, raw_scores, sample_weight)
        activation = self.objective.activation
        loss = activation.loss if self.kind == "fenchel_young" else partial(proper_score, "brier", activation)
        blocks = _blocks(raw_scores, labels, weight)
        total = sum(
            float(loss(z, _classes(y, z), ignore_index=-100, reduction="none").double() @ w.double())
            for z, y, w in blocks
        )
        return self.kind, total / float(weight.sum()), False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.objective}, kind={self.kind!r})"


def _fixed(activation: Activation) -> Activation:
    """A copy of the activation, so that later training of the module does not change it."""
    if not isinstance(activation, Activation):
        raise TypeError(f"activation must be a name or an instance of sharmix.Activation, got {activation!r}")
    if learned := [name for name, parameter in activation.named_parameters() if parameter.requires_grad]:
        raise ValueError(f"{', '.join(learned)} of {activation} cannot be learned: boosting trains trees alone")
    if activation.dim != -1:
        raise ValueError(f"dim={activation.dim} of {activation} is not allowed; raw scores have the classes last, -1")
    activation = copy.deepcopy(activation).eval()
    activation(torch.zeros(1, 2))  # raises here if an order has a value for each row, or α-ReLU has no threshold
    return activation


def _scores_labels_and_weights(labels: Any, raw_scores: Any, sample_weight: Any) -> tuple[Array, Array, Array]:
    """Raw scores [n, classes], labels [n] and weights [n], whichever function of the packages calls."""
    if hasattr(raw_scores, "get_label"):  # a Dataset or a DMatrix
        data, raw_scores = raw_scores, labels
        labels, sample_weight = data.get_label(), data.get_weight()
    _check(raw_scores)
    given = sample_weight is not None and len(sample_weight) > 0  # XGBoost's array is empty if there are no weights
    weight = np.asarray(sample_weight) if given else np.ones(len(raw_scores), np.float32)
    labels = np.asarray(labels)
    for name, values in (("labels", labels), ("sample_weight", weight)):
        if values.shape != raw_scores.shape[:1]:
            raise ValueError(f"{name} of shape {values.shape} do not match raw scores of shape {raw_scores.shape}")
    return raw_scores, labels, weight


def _check(raw_scores: Any) -> None:
    if not isinstance(raw_scores, np.ndarray) or raw_scores.dtype not in (np.float32, np.float64):
        kind = raw_scores.dtype if isinstance(raw_scores, np.ndarray) else type(raw_scores).__name__
        raise TypeError(f"raw scores must be a NumPy array of float32 or float64, got {kind}")
    if raw_scores.ndim != 2 or raw_scores.shape[1] < 2:
        needed = "they must be (n, classes) with at least 2 classes; give num_class, for two classes num_class=2"
        raise ValueError(f"raw scores of shape {raw_scores.shape} are not allowed; {needed}")


def _blocks(raw_scores: Array, *others: Array) -> Iterator[tuple[Tensor, ...]]:
    """Blocks of rows of all arrays, as tensors that share the memory of the arrays."""
    rows = max(1, _BLOCK // raw_scores.shape[1])
    for start in range(0, len(raw_scores), rows):
        parts = [array[start : start + rows] for array in (raw_scores, *others)]
        yield tuple(torch.from_numpy(part if part.flags.writeable else part.copy()) for part in parts)


def _classes(labels: Tensor, like: Tensor) -> Tensor:
    """Labels [n] as int64 class indices; ValueError if one is no class of `like` [n, classes]."""
    indices, classes = labels.long(), like.shape[-1]
    wrong = (indices != labels) | (indices < 0) | (indices >= classes)
    if wrong.any():
        allowed = f"with num_class={classes} labels are the whole numbers 0 to {classes - 1}"
        raise ValueError(f"label {labels[wrong][0].item()!r} is not allowed; {allowed}")
    return indices
