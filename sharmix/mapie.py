"""The score of `sharmix.conformal` for MAPIE, which this module needs: `pip install 'sharmix[mapie]'`."""

from fractions import Fraction
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sharmix.conformal import check_orders, conformal_quantile, support_scores

try:
    from mapie.conformity_scores import BaseClassificationScore  # type: ignore[import-untyped]
except ImportError as error:
    raise ImportError("sharmix.mapie needs MAPIE; pip install 'sharmix[mapie]'") from error

__all__ = ["SupportConformityScore"]


class SupportConformityScore(BaseClassificationScore):  # type: ignore[misc]
    """The temperature above which a class is in the support of the map, as MAPIE's conformity score.

    MAPIE gives it probabilities p of any classifier; the logits are log p. Class k is then in the set where
    `sharmix.conformal.support_scores(log p, q=q, r=r)` is at most MAPIE's quantile. MAPIE takes no score but its own
    LAC where there are two classes.

    All classes of probability 0 have the score ∞. Where the quantile is ∞, as it is with too many zeros at the label,
    sets hold all classes. So give the logits of a classifier with sparse outputs, such as `FenchelYoungClassifier`, to
    `sharmix.conformal.SupportPredictor` instead: `decision_function` has them.

    Args:
        q: as for `sharmix.conformal.support_scores`, and r.
        r: likewise.

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

    def get_conformity_scores(
        self, y: NDArray[Any], y_pred: NDArray[Any], *, y_enc: NDArray[Any], **kwargs: Any
    ) -> NDArray[Any]:
        """Of probabilities `y_pred` [samples, classes] the scores of the classes `y_enc` [samples]; [samples, 1]."""
        scores: NDArray[Any] = np.take_along_axis(self._scores(y_pred), y_enc.reshape(-1, 1), axis=1)
        return scores

    def get_predictions(
        self,
        X: NDArray[Any],
        alpha_np: NDArray[Any],
        y_pred_proba: NDArray[Any],
        cv: Any,
        agg_scores: str = "mean",
        **kwargs: Any,
    ) -> NDArray[Any]:
        """The scores of all classes, which the sets are made of; [samples, classes]."""
        if agg_scores != "mean":
            raise ValueError(f"agg_scores={agg_scores!r} is not allowed with SupportConformityScore; it must be 'mean'")
        return self._scores(y_pred_proba)

    def get_conformity_score_quantiles(
        self, conformity_scores: NDArray[Any], alpha_np: NDArray[Any], cv: Any, **kwargs: Any
    ) -> NDArray[Any]:
        """The threshold of each α, [alphas]."""
        scores = torch.as_tensor(conformity_scores).flatten()
        return np.array([conformal_quantile(scores, 1 - Fraction(str(alpha))).item() for alpha in alpha_np])

    def get_prediction_sets(
        self,
        y_pred_proba: NDArray[Any],
        conformity_scores: NDArray[Any],
        alpha_np: NDArray[Any],
        cv: Any,
        **kwargs: Any,
    ) -> NDArray[Any]:
        """Booleans [samples, classes, alphas] from what `get_predictions` returned."""
        sets: NDArray[Any] = y_pred_proba[:, :, None] <= self.quantiles_
        return sets

    def _scores(self, probabilities: NDArray[Any]) -> NDArray[Any]:
        logits = torch.as_tensor(probabilities).double().log()
        return support_scores(logits, q=self.q, r=self.r).numpy()
