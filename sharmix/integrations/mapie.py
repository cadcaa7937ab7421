"""The conformity score of `sharmix.conformal` for MAPIE. Needs MAPIE: `pip install 'sharmix[mapie]'`."""

from fractions import Fraction
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sharmix.conformal import check_orders, conformal_quantile, support_scores

try:
    from mapie.conformity_scores import BaseClassificationScore  # type: ignore[import-untyped]
except ImportError as error:
    raise ImportError("sharmix.integrations.mapie needs MAPIE; pip install 'sharmix[mapie]'") from error

__all__ = ["SupportConformityScore"]

Array = NDArray[Any]


class SupportConformityScore(BaseClassificationScore):  # type: ignore[misc]
    """The temperature above which a class is in the support of the map, as MAPIE's conformity score.

    The support is the set of classes with a probability above 0. MAPIE passes the probabilities p of any classifier;
    their logarithms log p serve as logits. Class k is in the prediction set where
    `sharmix.conformal.support_scores(log p, q=q, r=r)` is at most MAPIE's quantile. With two classes MAPIE allows no
    score but its own LAC.

    Every class of probability 0 has the score ∞. For a classifier with sparse outputs, such as
    `FenchelYoungClassifier`, therefore use `sharmix.conformal.SupportPredictor` with the logits from the classifier's
    `decision_function`.

    Args:
        q, r: as for `sharmix.conformal.support_scores`.

    Example:
        >>> from mapie.classification import SplitConformalClassifier
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.linear_model import LogisticRegression
        >>> X, y = load_iris(return_X_y=True)
        >>> estimator = LogisticRegression().fit(X[::2], y[::2])
        >>> score = SupportConformityScore(q=1.5, r=1.5)
        >>> conformal = SplitConformalClassifier(estimator, confidence_level=0.9, conformity_score=score)
        >>> classes, sets = conformal.conformalize(X[1::4], y[1::4]).predict_set(X[3::4])
        >>> sets.shape
        (37, 3, 1)
    """

    def __init__(self, q: float = 1.25, r: float = 1.5) -> None:
        super().__init__()
        check_orders(q, r)
        self.q, self.r = q, r

    def get_conformity_scores(self, y: Array, y_pred: Array, *, y_enc: Array, **kwargs: Any) -> Array:
        """The scores [samples, 1] of the classes `y_enc` [samples], from probabilities `y_pred` [samples, classes]."""
        return np.take_along_axis(self._scores(y_pred), y_enc.reshape(-1, 1), axis=1)

    def get_predictions(
        self, X: Array, alpha_np: Array, y_pred_proba: Array, cv: Any, agg_scores: str = "mean", **kwargs: Any
    ) -> Array:
        """The scores of all classes, [samples, classes], from which `get_prediction_sets` makes the sets."""
        if agg_scores != "mean":
            raise ValueError(f"agg_scores={agg_scores!r} is not allowed with SupportConformityScore; it must be 'mean'")
        return self._scores(y_pred_proba)

    def get_conformity_score_quantiles(
        self, conformity_scores: Array, alpha_np: Array, cv: Any, **kwargs: Any
    ) -> Array:
        """The score threshold for each miscoverage α of `alpha_np`, [alphas]."""
        scores = torch.as_tensor(conformity_scores).flatten()
        return np.array([conformal_quantile(scores, 1 - Fraction(str(alpha))).item() for alpha in alpha_np])

    def get_prediction_sets(
        self, y_pred_proba: Array, conformity_scores: Array, alpha_np: Array, cv: Any, **kwargs: Any
    ) -> Array:
        """The sets as booleans [samples, classes, alphas], from the scores that `get_predictions` returned."""
        return y_pred_proba[:, :, None] <= self.quantiles_

    def _scores(self, probabilities: Array) -> Array:
        logits = torch.as_tensor(probabilities).double().log()
        return support_scores(logits, q=self.q, r=self.r).numpy()
