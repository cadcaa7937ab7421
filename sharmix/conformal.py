"""Prediction sets with a guarantee: supports of the map at a temperature that split conformal prediction finds.

The support of a probability vector is the set of classes with a probability above 0. The temperature at which a class
enters the support is its conformal score, `support_scores`; `SupportPredictor` calibrates a temperature with it.
TorchCP takes the score as a function: `SplitPredictor(functools.partial(support_scores, q=1.5, r=1.5), model)`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import Self

import torch
from torch import Tensor

from sharmix._arguments import checked_number, classes_last
from sharmix._operators.orders import checked_orders, is_concave, solving_dtype
from sharmix._targets import check_targets, label_error, outside_classes
from sharmix._warn import warn

__all__ = ["SupportPredictor", "support_scores"]

_HELD = 2**14  # logits in one part of the computation; they and all intermediate results fit into a cache
_TOGETHER = 4  # classes of a sorted row that one step compares with all classes before them
_MOST_POWER = 8  # 1/(q − 1) up to which sums by moments are faster than sums over pairs of classes
_LEAST_GAP = {torch.float64: 1e-300, torch.float32: 1e-37}  # the divisor in place of 0
# Relative; it keeps the class that decides the temperature in the map's support.
_MARGIN = {torch.float64: 1e-7, torch.float32: 1e-5}
_LEAST_TEMPERATURE = torch.finfo(torch.float32).tiny
_MOST_SHOWN = 5  # classes that a warning lists


def support_scores(logits: Tensor, labels: Tensor | None = None, q: float = 1.25, r: float = 1.5) -> Tensor:
    """T_k, the temperature above which class k is in the support of `sharmix.sharmix(logits, q, r, temperature)`.

        T_k = (q − 1) Δ_k W^{q−1} exp((r − q) R_q(p)),    wᵢ = (1 − Δᵢ/Δ_k)₊^{1/(q−1)},   W = Σ wᵢ,   p = w/W

    Δᵢ is the gap between the row's largest logit and logit i, and R_q is the Rényi entropy. The score is larger for a
    class that fits the logits less, and 0 for the largest logit. At r = q, T_k is q − 1 times the score of Campos et
    al. (2025). All scores of a row take O(classes · log classes) time where 1/(q − 1) is an integer up to 8, such as
    at q = 2, 1.5 and 1.25, and O(classes²) time elsewhere. The score of the label alone takes O(classes) time.

    Args:
        logits: z, [..., classes], floating point. Half precision gives scores in float32. A logit of −inf has the
            score ∞.
        labels: class indices [...] of an integer type, to compute the scores of these classes alone.
        q: 1 < q ≤ 1000. At q = 1 the map is softmax, which gives every class a probability above 0.
        r: r ≥ 2 − 1/q, where the map's objective is concave, and at most the limit that `sharmix.sharmix` has.

    Returns:
        Scores ≥ 0 in units of the logits, with the shape of the logits, or of the labels if given; without gradients.
        The scores of a row are NaN where the map's output is NaN.

    Raises:
        TypeError: the logits are not floating-point numbers, or the labels are not integers.
        ValueError: the value of q, of r or of a label is not allowed.

    Source: docs/math.md, section 8; for r = q Campos et al. (2025), Sparse Activations as Conformal Predictors.

    Example:
        >>> z = torch.tensor([2.0, 1.0, -1.0])
        >>> sharmix.conformal.support_scores(z, q=1.5, r=2.0)
        tensor([0.0000, 0.5000, 2.4143])
        >>> sharmix.sharmix(z, q=1.5, r=2.0, temperature=2.2) > 0
        tensor([ True,  True, False])
    """
    gaps = _gaps(logits, q, r)
    wide = torch.promote_types(logits.dtype, torch.float32)
    if labels is not None:
        own = gaps.gather(-1, checked_labels(labels, logits).reshape(-1, 1)).squeeze(-1)
        return _of_labels(gaps, own, q, r).reshape(labels.shape).to(wide)
    scores = torch.empty_like(gaps)
    for rows in _parts(len(gaps), _HELD // gaps.shape[-1]):
        scores[rows] = _of_all(gaps[rows], q, r)
    return scores.reshape(logits.shape).to(wide)


@dataclass(eq=False)
class SupportPredictor:
    """Prediction sets that hold the true class with a given probability: supports of the map at a fitted temperature.

        C(z) = {k : T_k(z) ≤ T},    T = the ⌈(n + 1) · coverage⌉-th smallest score of n calibration examples

    If the n calibration examples and a new example are exchangeable, C contains the class of the new example with a
    probability of at least `coverage`. This holds however good or bad the network is, on average over draws of the
    calibration examples and the new example (split conformal prediction).

    `sets` gives the support of `sharmix.sharmix(logits, q, r, predictor.temperature)`. Rounding makes one difference:
    the map's output can lack a class of the set, one whose T_k is within 10⁻⁷ of the temperature, relatively (10⁻⁴ for
    float32 logits), or whose probability underflows. Many classes underflow for q below 1.1, and in float16 some do up
    to q = 1.5. The output has a class that the set lacks only if its T_k is within 10⁻¹⁴ of a temperature of your own.

    Args:
        q, r: as for `support_scores`.
        temperature: T > 0, the temperature of an earlier calibration. `torch.save(vars(predictor), path)` saves q, r
            and the temperature, and `SupportPredictor(**torch.load(path))` restores the predictor.

    Attributes:
        temperature: the fitted temperature, a float64 tensor [], or [classes] after a calibration for each class; never
            below 1.2e-38. It is float32 on a device without float64. If there are too few calibration examples for the
            coverage, it is ∞, which the map itself does not allow, and the sets hold all classes.

    Shape:
        logits (..., C), C classes; labels (...); sets (..., C).

    Source: Campos et al. (2025) for r = q; Vovk, Gammerman and Shafer (2005).

    Example:
        >>> z = torch.tensor([[2, 1, -1], [0.5, 0, 0.3], [0, 3, 1], [1, 0, 0.8]])
        >>> predictor = sharmix.conformal.SupportPredictor(q=1.5, r=1.5)
        >>> predictor = predictor.calibrate(z, torch.tensor([0, 2, 2, 0]), 0.6)
        >>> predictor.sets(z[:2])
        tensor([[ True, False, False],
                [ True, False,  True]])
    """

    q: float = 1.25
    r: float = 1.5
    temperature: Tensor | None = None

    def __post_init__(self) -> None:
        _check_orders(self.q, self.r)
        self.q, self.r = float(self.q), float(self.r)  # torch.load raises for NumPy's numbers
        if self.temperature is not None:
            given = self.temperature
            if not isinstance(given, Tensor):
                given = torch.tensor(given, dtype=torch.float64, device="cpu")
            self.temperature = given.to(solving_dtype(given.device))
            if not (self.temperature > 0).all():
                raise ValueError(f"temperature={self.temperature.tolist()} is not allowed; it must be > 0")

    def calibrate(
        self, logits: Tensor, labels: Tensor, coverage: float = 0.9, *, class_conditional: bool = False
    ) -> Self:
        """Find the temperature from calibration examples; returns this predictor.

        Args:
            logits: [..., classes], of examples that were used neither to train the network nor to choose q and r.
            labels: the class index of each example, [...], of an integer type.
            coverage: the least probability that a set contains the true class, 0 < coverage < 1.
            class_conditional: True makes the coverage hold among the examples of each class (Mondrian). Each class then
                has a temperature of its own, from the calibration examples of that class, and a set is no longer the
                support of one map.

        Raises:
            TypeError: an argument is of the wrong type.
            ValueError: the coverage or a label is not allowed, a row has no largest finite logit, or there are no rows.

        Warns:
            RuntimeWarning: there are fewer than coverage/(1 − coverage) calibration examples, in total or of a class.
        """
        if isinstance(coverage, bool) or not isinstance(coverage, Real):
            raise TypeError(f"coverage must be a number, got {type(coverage).__name__}")
        if not 0 < coverage < 1:
            raise ValueError(f"coverage={coverage!r} is not allowed; it must be > 0 and < 1")
        exact = Fraction(str(float(coverage)))  # the decimal as written: in floating point 0.07 · 100 is more than 7
        gaps = self._finite_gaps(logits)
        indices = checked_labels(labels, logits).flatten()
        scores = _of_labels(gaps, gaps.gather(-1, indices.unsqueeze(-1)).squeeze(-1), self.q, self.r)
        if not len(scores):
            raise ValueError(f"logits of shape {tuple(logits.shape)} hold no calibration examples")
        groups = [scores]
        if class_conditional:
            groups = [scores[indices == label] for label in range(logits.shape[-1])]
        thresholds = torch.stack([_quantile(group, exact) for group in groups])
        if few := [label for label, group in enumerate(groups) if rank_of(len(group), exact) > len(group)]:
            _warn_of_few(few if class_conditional else [], len(scores), exact)
        temperatures = thresholds.clamp_min(_LEAST_TEMPERATURE)
        self.temperature = temperatures if class_conditional else temperatures[0]
        return self

    def sets(self, logits: Tensor) -> Tensor:
        """The prediction set of each row of logits [..., classes]: booleans, True for a class in the set.

        The class of the largest logit is in every set.

        Raises:
            RuntimeError: there is no temperature yet.
            TypeError: the logits are not floating-point numbers.
            ValueError: a row has no largest finite logit, or there is a temperature for each class and the logits have
                another number of classes.
        """
        if self.temperature is None:
            raise RuntimeError("SupportPredictor has no temperature yet; call calibrate(logits, labels) first")
        gaps = self._finite_gaps(logits)
        temperature = self.temperature.to(gaps)
        if temperature.dim() == 0:
            return (gaps <= _last_member(gaps, temperature, self.q, self.r)).reshape(logits.shape)
        if temperature.shape != logits.shape[-1:]:
            shapes = f"{tuple(logits.shape)} do not fit temperatures of shape {tuple(temperature.shape)}"
            raise ValueError(f"logits of shape {shapes}; allowed are one temperature, or one for each class")
        return support_scores(logits.to(gaps.dtype), None, self.q, self.r) <= temperature

    def _finite_gaps(self, logits: Tensor) -> Tensor:
        """The gaps Δ, [rows, classes]; ValueError if a row has no largest finite logit."""
        gaps = _gaps(logits, self.q, self.r)
        if (unreadable := gaps.isnan().any(-1)).any():
            raise ValueError(f"row {int(unreadable.nonzero()[0])} of the logits has no largest finite logit")
        return gaps


def _check_orders(q: float, r: float) -> None:
    """Raise TypeError or ValueError if q or r is not allowed, or the score has no closed form for them."""
    for order, name in ((q, "q"), (r, "r")):
        if isinstance(order, Tensor):
            raise TypeError(f"{name} must be a number, got a tensor; give {name}.item()")
        checked_number(order, name)
    if q == 1:
        raise ValueError("q=1 is not allowed: the map is softmax, whose support is all classes; q must be > 1")
    if not is_concave(q, r):
        raise ValueError(f"(q, r) = ({q:g}, {r:g}) is not allowed; r must be >= 2 - 1/q = {2 - 1 / q:g}")


def checked_labels(labels: Tensor, logits: Tensor) -> Tensor:
    """The labels as int64, after their type, shape and range are checked."""
    if isinstance(labels, Tensor) and labels.shape == logits.shape:
        raise ValueError("labels must be class indices [...]; of one-hot labels these are labels.argmax(-1)")
    if not isinstance(labels, Tensor) or labels.dtype == torch.bool or labels.is_floating_point():
        given = labels.dtype if isinstance(labels, Tensor) else type(labels).__name__
        raise TypeError(f"labels must be a tensor of class indices of an integer type, got {given}")
    check_targets(logits, labels)
    classes, labels = logits.shape[-1], labels.long()
    if (outside := outside_classes(labels, classes)).any():
        raise label_error(labels[outside][0].item(), classes)
    return labels


def _gaps(logits: Tensor, q: float, r: float) -> Tensor:
    """The gap between the largest logit of a row and each logit, [rows, classes] in the `solving_dtype`.

    The gaps of a row whose largest logit is not finite are NaN.
    """
    _check_orders(q, r)
    z = classes_last(logits, "logits", -1).detach()
    if not z.shape[-1]:
        raise ValueError(f"logits of shape {tuple(z.shape)} hold no classes")
    checked_orders(z, (float(q), float(r), 1.0))
    z = z.reshape(-1, z.shape[-1]).to(solving_dtype(z.device))
    largest = z.amax(-1, keepdim=True)
    return torch.where(largest.isfinite(), largest - z, torch.nan)


def _parts(count: int, size: int) -> Iterator[slice]:
    size = max(1, size)
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def _of_labels(gaps: Tensor, own: Tensor, q: float, r: float) -> Tensor:
    """T of one class for each row, [rows]; `own` [rows] holds the gaps of these classes."""
    scores = torch.empty_like(own)
    for rows in _parts(len(gaps), _HELD // gaps.shape[-1]):
        scores[rows] = _score(own[rows], *_sums(gaps[rows].T, own[rows], q), q, r)
    return scores


def _of_all(gaps: Tensor, q: float, r: float) -> Tensor:
    """T of all classes, [rows, classes]."""
    ordered, classes = gaps.contiguous().sort(-1)
    power = 1 / (q - 1)
    if power < _MOST_POWER + 0.5 and math.isclose(power, round(power), rel_tol=1e-14):
        sums = _sums_by_moments(ordered, round(power))
    else:
        sums = _sums_by_pairs(ordered, q)
    # Tied classes get the score of the first of them, so that their scores are equal to the last bit.
    first = torch.searchsorted(ordered, ordered).clamp_max(gaps.shape[-1] - 1)
    scores = _score(ordered, *sums, q, r).gather(-1, first)
    return torch.empty_like(scores).scatter_(-1, classes, scores)


def _sums_by_pairs(ordered: Tensor, q: float) -> tuple[Tensor, Tensor]:
    """The sums of `_sums` for all classes, from gaps in ascending order.

    A step computes them for a few classes. The sums of a class run over the classes with smaller or equal gaps.
    """
    columns = ordered.T.contiguous()
    parts = [_sums(columns[: part.stop].unsqueeze(1), columns[part], q) for part in _parts(len(columns), _TOGETHER)]
    return torch.cat([total for total, _ in parts]).T, torch.cat([weighted for _, weighted in parts]).T


def _sums(gaps: Tensor, own: Tensor, q: float) -> tuple[Tensor, Tensor]:
    """Σ wᵢ and Σ wᵢ Δᵢ/Δ_k over the first dimension of the gaps, for classes k whose gaps are `own`, shaped like it."""
    negated = (gaps / own.neg()).clamp_min_(-1)  # NaN where a gap is 0, whose score `_score` knows
    weights = negated.log1p().mul_(1 / (q - 1) / math.log(2)).exp2_()  # twice as fast as exp
    return weights.sum(0), negated.mul_(weights).sum(0).neg_()


def _sums_by_moments(ordered: Tensor, power: int) -> tuple[Tensor, Tensor]:
    """The sums of `_sums` for all classes at once, from gaps in ascending order and wᵢ = (1 − Δᵢ/Δ_k)^power.

    The moments Mⱼ(k) = Σ (1 − Δᵢ/Δ_k)ʲ over the w classes up to k follow from the moments of the two halves of these
    classes, without a difference of moments: with ρ = Δ_l/Δ_k for l = k − w/2, 1 − Δᵢ/Δ_k = (1 − ρ) + ρ (1 − Δᵢ/Δ_l).
    """
    moments = ordered.new_zeros(power + 2, *ordered.shape)
    moments[0] = 1
    width, classes = 1, ordered.shape[-1]
    while width < classes:
        ratio = ordered[:, :-width] / ordered[:, width:].clamp_min(_LEAST_GAP[ordered.dtype])
        shifted = moments[..., :-width]
        carried = [shifted[0]]
        for _ in range(power + 1):
            shifted = shifted[:-1].lerp(shifted[1:], ratio)
            carried.append(shifted[0])
        moments[..., width:] += torch.stack(carried)
        width *= 2
    return moments[power], moments[power] - moments[power + 1]


def _score(own: Tensor, total: Tensor, weighted: Tensor, q: float, r: float) -> Tensor:
    """T_k from Δ_k, W = Σ wᵢ and Σ wᵢ Δᵢ/Δ_k."""
    exponent = (r - 1) * total.log() - (r - q) / (q - 1) * torch.log1p(-weighted / total)
    return (exponent.exp() * own * (q - 1)).masked_fill(own == 0, 0).masked_fill(own == torch.inf, torch.inf)


def _last_member(gaps: Tensor, temperature: Tensor, q: float, r: float) -> Tensor:
    """The largest gap of each row with T_k ≤ temperature, [rows, 1], by bisection: T_k grows with the gap."""
    ordered = gaps.sort(-1).values
    inside = torch.zeros_like(gaps[:, :1], dtype=torch.long)
    outside = torch.full_like(inside, gaps.shape[-1])
    while (outside - inside > 1).any():
        middle = (inside + outside) // 2
        is_member = _of_labels(gaps, ordered.gather(-1, middle).squeeze(-1), q, r).unsqueeze(-1) <= temperature
        inside, outside = torch.where(is_member, middle, inside), torch.where(is_member, outside, middle)
    return ordered.gather(-1, inside)


def _quantile(scores: Tensor, coverage: Fraction) -> Tensor:
    """The ⌈(n + 1) · coverage⌉-th smallest of n scores, slightly enlarged, [] from [n]; ∞ if n is too small.

    It is enlarged because the scores of equal rows in a small and in a large batch can differ in their last bits.
    """
    rank = rank_of(len(scores), coverage)
    margin = _MARGIN[scores.dtype]
    return scores.kthvalue(rank).values * (1 + margin) if rank <= len(scores) else scores.new_full((), torch.inf)


def rank_of(count: int, coverage: Fraction) -> int:
    """Of so many scores, from the smallest: the one that a new score exceeds with a probability of 1 − coverage."""
    return math.ceil((count + 1) * coverage)


def _warn_of_few(classes: list[int], examples: int, coverage: Fraction) -> None:
    least = math.ceil(coverage / (1 - coverage))
    needs = f"coverage={float(coverage)} needs {least} calibration examples"
    if classes:
        shown = ", ".join(map(str, classes[:_MOST_SHOWN]))
        shown += f", … ({len(classes)} in all)" if len(classes) > _MOST_SHOWN else ""
        message = f"{needs} of a class; classes with fewer are in every set: {shown}"
    else:
        message = f"{needs}, and there are {examples}: the temperature is inf, and every set holds all classes"
    warn(message, RuntimeWarning)
