"""Calibration of logits: the temperature, q and r of SharMiX, fitted to examples."""

import math
from numbers import Real
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_array, check_is_fitted
from torch import Tensor

from sharmix._operators.orders import is_concave
from sharmix._targets import label_error, outside_classes
from sharmix._warn import warn
from sharmix.functional import sharmix
from sharmix.integrations.sklearn._weights import checked_weights

LARGEST_LOG_RATIO = 10.0  # |log(T₀/spread)| at most; scikit-learn limits |log T₀|
LARGEST_Q = 2.0  # that of sparsemax; above 2 the derivatives of the map are unbounded
LARGEST_R = 4.0
STARTS_Q, STARTS_SHARE = (1.0, 1.25, 1.5, 2.0), (0.0, 0.1, 0.3, 1.0)
STARTS_TEMPERATURES = 41  # at distances of 0.5 in log T₀
OPTIONS = {"maxiter": 200, "ftol": 1e-12, "gtol": 1e-7}
UNREACHED = 1e3  # a line search gets it for an infinite loss: above any finite log loss, yet not so far as to mislead

Point = tuple[float, float, float]  # log T₀, q, and the share of the way that r has gone from its least to LARGEST_R


class SharMiXScaling(BaseEstimator):
    """Post-hoc calibration of logits: the temperature, q and r of SharMiX that minimise a proper score.

        p = argmax over the simplex of  p·z + (T₀/q) H_{q,r}(p),      z the logits of a trained classifier

    The fit finds each argument that is None, and keeps each argument that is a number:

    - `SharMiXScaling(q=1, r=1)` is temperature scaling, softmax(z/T₀);
    - `SharMiXScaling(r="q")` is entmax scaling, the α-entmax of z/T₀ with α = q;
    - `SharMiXScaling()` fits all three.

    The fit searches 1 ≤ q ≤ 2, 2 − 1/q ≤ r ≤ 4 and |log(T₀/s)| ≤ 10 by L-BFGS-B from several starts. Here s is the unit
    of the logits: the weighted median, over the rows whose logits differ, of the largest minus the smallest logit.

    Args:
        q: the first order: None, or a number that is at least 1.
        r: the second order: None, a number that is at least 2 − 1/q, or the word `"q"`, which makes r equal to q.
        temperature: T₀: None, or a number above 0.
        loss: the loss whose mean over the examples the fit minimises: `brier`, Σ (pᵢ − yᵢ)², or `log`, −log p_y, which
            is infinite at p_y = 0, so that the fit keeps the probability of each example's class above 0.

    Attributes:
        q_, r_, temperature_: the fitted or kept values.
        loss_: the mean loss at these values.

    Source: Guo et al. (2017) for temperature scaling; the map's derivatives: docs/math.md, section 4.

    Example:
        >>> logits = [[4, 1, 0], [0, 3, 1], [2, 3, 0], [1, 0, 5], [3, 2.5, 0], [0, 1, 4]]
        >>> scaling = SharMiXScaling(r="q").fit(logits, [0, 1, 0, 2, 0, 2])
        >>> round(scaling.temperature_, 3), round(scaling.q_, 3)
        (3.1, 2.0)
        >>> scaling.transform([[4, 1, 0], [2, 2.5, 0]]).round(2)
        array([[0.98, 0.02, 0.  ],
               [0.42, 0.58, 0.  ]])
    """

    def __init__(
        self,
        *,
        q: float | None = None,
        r: float | Literal["q"] | None = None,
        temperature: float | None = None,
        loss: Literal["brier", "log"] = "brier",
    ) -> None:
        self.q = q
        self.r = r
        self.temperature = temperature
        self.loss = loss

    @torch.inference_mode(False)  # the fit needs gradients, also if the caller is in inference mode
    def fit(self, logits: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Find the temperature and the orders.

        Args:
            logits: z, [examples, classes], finite. For probabilities that may be 0, use log(p + 1e-12).
            y: the class of each example, as a column index of the logits, [examples], integers.
            sample_weight: the weight of each example, [examples]; None gives each the weight 1.

        Raises:
            ValueError: an argument, a shape or an index is not allowed.

        Warns:
            ConvergenceWarning: the log loss is infinite everywhere, or the temperature is an end of its range.
        """
        z = check_array(logits, dtype=np.float64, input_name="logits")
        labels = _checked_labels(y, z)
        weights = checked_weights(sample_weight, z)
        family = _Family(self.q, self.r, self.temperature, _spread(z, weights))
        self.loss_, point = _Score(family, z, labels, weights, self.loss).minimum()
        self.q_, self.r_, self.temperature_ = (
            order.item() for order in family.orders(torch.tensor(point, dtype=torch.float64))
        )
        problem = None
        if not math.isfinite(self.loss_) and None in (self.q, self.r, self.temperature):
            problem = "the log loss is infinite at every temperature and order that the fit looks at; use loss='brier'"
        elif self.temperature is None and point[0] in family.box[0]:
            end = f"temperature {self.temperature_:.3g} is an end of what the fit looks at"
            problem = f"{end}: these {len(z)} examples do not determine it; give more examples, or a temperature"
        if problem:
            warn(problem, ConvergenceWarning)
        return self

    def transform(self, logits: ArrayLike) -> NDArray[np.float64]:
        """The calibrated probabilities [examples, classes] for logits [examples, classes]."""
        check_is_fitted(self)
        z = torch.tensor(check_array(logits, dtype=np.float64, input_name="logits"))
        return sharmix(z, self.q_, self.r_, self.temperature_).numpy()


def _checked_labels(y: ArrayLike, z: NDArray[Any]) -> Tensor:
    """The labels as int64, after their type, shape and range are checked."""
    indices = np.asarray(y)
    if indices.shape != z.shape[:1] or not np.issubdtype(indices.dtype, np.integer):
        needed = f"logits of shape {z.shape} need one class index for each row, {z.shape[:1]} integers"
        raise ValueError(f"y of shape {indices.shape}, {indices.dtype} is not allowed; {needed}")
    labels = torch.from_numpy(indices.astype(np.int64))
    if (outside := outside_classes(labels, z.shape[1])).any():
        raise label_error(labels[outside][0].item(), z.shape[1])
    return labels


def _spread(z: NDArray[Any], weights: NDArray[Any]) -> float:
    """The unit of the logits: the weighted median of max z − min z over rows whose logits differ; 0 without any."""
    spreads = np.ptp(z, axis=1)
    order = np.argsort(spreads)
    reached = np.cumsum(np.where(spreads > 0, weights, 0)[order])
    return float(spreads[order[np.searchsorted(reached, reached[-1] / 2)]])


class _Family:
    """The maps that a fit can choose. Each map is a point of a box."""

    def __init__(
        self, q: float | None, r: float | Literal["q"] | None, temperature: float | None, spread: float
    ) -> None:
        if q is not None and not (isinstance(q, Real) and 1 <= q < math.inf):
            raise ValueError(f"q={q!r} is not allowed; it must be None or a number, at least 1")
        if temperature is not None and not (isinstance(temperature, Real) and 0 < temperature < math.inf):
            raise ValueError(f"temperature={temperature!r} is not allowed; it must be None or a number above 0")
        if not (r is None or r == "q" or isinstance(r, Real)):
            raise ValueError(f"r={r!r} is not allowed; it must be None, a number or 'q'")
        least = 1.0 if q is None else float(q)
        if isinstance(r, Real) and not (is_concave(least, float(r)) and r < math.inf):
            raise ValueError(f"r={r!r} is not allowed; with q={q!r} it must be at least {2 - 1 / least:g}")
        self.r, self.temperature = r, temperature
        largest_q = 1 / (2 - float(r)) if isinstance(r, Real) and r < 2 - 1 / LARGEST_Q else LARGEST_Q
        log_unit, ratio = (math.log(spread), LARGEST_LOG_RATIO) if spread else (0.0, 0.0)  # without it T₀ does nothing
        self.box = [
            (log_unit - ratio, log_unit + ratio) if temperature is None else (math.log(temperature),) * 2,
            (1.0, largest_q) if q is None else (q, q),
            (0.0, 1.0 if r is None else 0.0),
        ]

    def inside(self, *point: float) -> Point:
        """The point of the box that is nearest to the given point."""
        log_temperature, q, share = np.clip(point, *np.transpose(self.box)).tolist()
        return log_temperature, q, share

    def orders(self, point: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        log_temperature, q, share = point.unbind()
        if isinstance(self.r, Real):
            r = torch.full_like(q, float(self.r))
        else:
            r = q if self.r == "q" else 2 - 1 / q + share * (LARGEST_R - (2 - 1 / q))
        return q, r, log_temperature.exp() if self.temperature is None else torch.full_like(q, self.temperature)


class _Score:
    """The mean loss of a family's maps on some examples."""

    def __init__(self, family: _Family, z: NDArray[Any], labels: Tensor, weights: NDArray[Any], loss: str) -> None:
        if loss not in ("brier", "log"):
            raise ValueError(f"loss={loss!r} is not allowed; it must be 'brier' or 'log'")
        self.family, self.loss = family, loss
        counted = weights > 0
        self.z, self.weights = torch.tensor(z[counted]), torch.tensor(weights[counted] / weights.sum())
        self.labels = labels[torch.from_numpy(counted)].unsqueeze(-1)

    def mean(self, point: Tensor) -> Tensor:
        """The loss of a point, differentiable."""
        q, r, temperature = self.family.orders(point)
        p = sharmix(self.z, q, r, temperature)
        at_label = p.gather(-1, self.labels).squeeze(-1)
        rows = -at_label.log() if self.loss == "log" else p.square().sum(-1) - 2 * at_label + 1
        return rows @ self.weights

    def value(self, point: Point) -> float:
        with torch.no_grad():
            return self.mean(torch.tensor(point, dtype=torch.float64)).item()

    def gradient(self, point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """The loss and its derivatives; at an infinite loss, finite values with which a line search can go on."""
        variable = torch.tensor(point, requires_grad=True)
        loss = self.mean(variable)
        if not loss.isfinite():
            return UNREACHED, np.zeros_like(point)
        (derivatives,) = torch.autograd.grad(loss, variable)
        return loss.item(), derivatives.numpy()

    def descend(self, start: Point) -> tuple[float, Point]:
        """The loss and point of the minimum that L-BFGS-B finds from `start`: first over T₀ alone, then over all."""
        orders_held = [self.family.box[0], *zip(start[1:], start[1:], strict=True)]
        reached = [start]
        for bounds in (orders_held, self.family.box):
            found = minimize(self.gradient, reached[-1], jac=True, method="L-BFGS-B", bounds=bounds, options=OPTIONS)
            reached.append(self.family.inside(*found.x))
        return min((self.value(point), point) for point in reached)

    def minimum(self) -> tuple[float, Point]:
        """The best of two descents for each q: from the least r, where many minima are, and from the best larger r."""
        temperatures = np.linspace(*self.family.box[0], STARTS_TEMPERATURES)

        def start(q: float, share: float) -> tuple[float, Point]:
            points = {self.family.inside(log_temperature, q, share) for log_temperature in temperatures}
            return min((self.value(point), point) for point in points)

        found = []
        for q in {self.family.inside(0.0, q, 0.0)[1] for q in STARTS_Q}:
            least, *others = sorted({self.family.inside(0.0, q, share)[2] for share in STARTS_SHARE})
            starts = [start(q, least), *sorted(start(q, share) for share in others)[:1]]
            found += [self.descend(point) for _, point in starts]
        return min(found)
