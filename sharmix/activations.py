"""The activations of this library as modules."""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, Unpack, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from sharmix import _layer_in_blocks, _linear_loss, functional
from sharmix._activation import Activation
from sharmix._arguments import Order, as_autocast, checked, classes_last, may_read, one_value, widened
from sharmix._caller import current_caller
from sharmix._dtensor import is_dtensor
from sharmix._fenchel_young import LinearLossOptions, LossOptions, Reduction, reduced
from sharmix._learned_range import Learning, learned, learned_names
from sharmix._scores import proper_score
from sharmix._targets import checked_classes, nan_if_no_class
from sharmix.functional import (
    USUAL_R,
    AlphaReLURegulariser,
    MaskedRows,
    Nonconcave,
    SharmaMittalRegulariser,
    fenchel_young_loss,
)
from sharmix.registry import register

Objective = Literal["fenchel_young", "brier", "log"]


@register("softmax")
class Softmax(Activation):
    """Softmax, with the Shannon entropy H. Its loss is cross-entropy minus H(y).

        pᵢ = exp(zᵢ) / Σⱼ exp(zⱼ)

    Args:
        dim, masked_rows: as for `sharmix.sharmix`. The loss of a row of −inf alone is NaN, whatever `masked_rows` is.

    Shape:
        logits (*, C, *), C classes along `dim`; probabilities the same.

    Example:
        >>> sharmix.Softmax()(torch.tensor([1.0, 0.0])).sum()
        tensor(1.)
    """

    def __init__(self, dim: int = -1, *, masked_rows: MaskedRows = "nan") -> None:
        super().__init__(dim)
        self.masked_rows: MaskedRows = masked_rows
        functional.sharmix(torch.zeros(1, device="cpu"), masked_rows=masked_rows)  # raises here, not at the first batch

    def probabilities(self, logits: Tensor) -> Tensor:
        if self.masked_rows == "nan":
            return logits.softmax(-1)
        return functional.sharmix(logits, 1.0, 1.0, masked_rows=self.masked_rows)

    def entropy(self, probabilities: Tensor) -> Tensor:
        return functional.sharma_mittal_entropy(probabilities, 1.0, 1.0)

    def conjugate(self, logits: Tensor) -> Tensor:
        return logits.logsumexp(-1)

    def _regulariser(self) -> SharmaMittalRegulariser | None:
        return SharmaMittalRegulariser(1.0, 1.0, 1.0, "global") if type(self) is Softmax else None

    def class_loss(self, logits: Tensor, targets: Tensor, ignore_index: int, reduction: Reduction) -> Tensor:
        if not _are_classes(targets, logits, ignore_index):
            return self._loss_with_ignored_rows(logits, targets, ignore_index, reduction)
        if logits.dim() == 2:  # the usual case needs no views, each of which adds a node to the autograd graph
            return cross_entropy(logits, targets, reduction=reduction)
        loss = cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.flatten(), reduction=reduction)
        return loss.reshape(targets.shape) if reduction == "none" else loss

    def _loss_with_ignored_rows(
        self, logits: Tensor, targets: Tensor, ignore_index: int, reduction: Reduction
    ) -> Tensor:
        """The loss if rows may be ignored. The logits of an ignored row may hold anything, such as NaN."""
        indices, counted = checked_classes(targets, logits.shape[-1], ignore_index), targets != ignore_index
        finite = torch.where(counted.unsqueeze(-1), logits, 0).reshape(-1, logits.shape[-1])
        rows = cross_entropy(finite, indices.flatten(), reduction="none").reshape(targets.shape)
        rows = nan_if_no_class(rows, targets, logits.shape[-1], ignore_index)
        return reduced(torch.where(counted, rows, 0), counted.to(rows.dtype), reduction)


def _are_classes(targets: Tensor, logits: Tensor, ignore_index: int) -> bool:
    """Whether all targets are class indices and none is ignored; False if there are none or values are not read."""
    classes = logits.shape[-1]
    is_read = may_read(targets) and current_caller().can_read_values
    if not is_read or targets.numel() == 0 or 0 <= ignore_index < classes:
        return False
    lowest, highest = torch.stack(targets.aminmax()).tolist()
    return bool(lowest >= 0 and highest < classes)


class SharmaMittal(Learning, Activation):
    """The base class of all maps of the Sharma–Mittal family. A subclass defines its orders (q, r, T₀).

    The map and its loss follow from the orders. A subclass that overrides `probabilities` overrides `loss`, too.

    With `objective="brier"` or `"log"` the learned parameters get their gradients from that proper score of p
    (`proper_score`), through the map's Jacobians. The score compares p with the targets as given, without label
    smoothing and class weights. The loss keeps its value, and the logits keep their gradient p − y. `linear_loss` does
    not know beforehand how many rows the log score leaves out: there its mean is over all rows that are not ignored.
    """

    _starts: ClassVar[tuple[str, ...]] = ()  # the arguments that can be learned
    _learned_by_default: ClassVar[tuple[str, ...]] = ()  # the arguments that learned=True selects

    def __init__(
        self,
        dim: int,
        learned: bool | Sequence[str],
        objective: Objective,
        nonconcave: Nonconcave = "global",
        masked_rows: MaskedRows = "nan",
        **starts: Order,
    ) -> None:
        super().__init__(dim)
        self.learned = learned_names(learned, self._starts, self._learned_by_default)
        if objective not in get_args(Objective):
            raise ValueError(f"objective={objective!r} is not allowed; it is one of {', '.join(get_args(Objective))}")
        if objective != "fenchel_young" and not self.learned:
            raise ValueError(f"objective={objective!r} trains learned orders only; give learned=True as well")
        self.objective: Objective = objective
        self.nonconcave, self.masked_rows = nonconcave, masked_rows
        self._has_rows = any(isinstance(start, Tensor) and start.dim() for start in starts.values())
        for name, start in starts.items():
            self._set(name, start)
        self._check({name: _on_the_cpu(start) for name, start in starts.items()})

    def _set(self, name: str, start: Order) -> None:
        if name in self.learned:
            setattr(self, name, learned(name, start))
        elif isinstance(start, nn.Parameter):
            raise ValueError(f"{name} is a parameter, but not among learned={self.learned}; name it there")
        elif isinstance(start, Tensor):
            self.register_buffer(name, start if start.requires_grad else start.clone())
        else:
            setattr(self, name, start)

    def _check(self, starts: dict[str, Order]) -> None:
        """Raise at construction, not at the first batch, if an argument is not allowed."""
        tensors = [start for start in starts.values() if isinstance(start, Tensor)]
        rows = torch.broadcast_tensors(torch.ones((), device="cpu"), *tensors)[0].shape  # type: ignore[no-untyped-call]
        each = [start.unsqueeze(-1) if isinstance(start, Tensor) else start for start in starts.values()]
        with torch.no_grad():
            zeros = torch.zeros((*rows, 1), device=tensors[0].device if tensors else "cpu")  # or meta
            functional.sharmix(zeros, *self._orders(*each), nonconcave=self.nonconcave, masked_rows=self.masked_rows)

    @abstractmethod
    def _orders(self, *values: Order) -> tuple[Order, Order, Order]:
        """(q, r, T₀) from the values of the arguments named in `_starts`."""

    def orders(self) -> tuple[Order, Order, Order]:
        """(q, r, T₀): numbers, or tensors that broadcast against the logits with size 1 along `dim`."""
        own: dict[str, Any] = self._parameters  # a dictionary look-up takes a tenth of the time of an attribute
        return self._orders(*[own[name] if name in own else getattr(self, name) for name in self._starts])

    def _orders_of(self, values: Tensor) -> tuple[Order, Order, Order]:
        """`orders()` in a shape that fits `values`, logits or probabilities whose class dimension was moved last."""
        # An export to ONNX reads the parameters themselves.
        if self.dim == -1 and (not self._has_rows or current_caller().exports_to_onnx):
            return self.orders()
        given = classes_last(values, "logits", -1).movedim(-1, self.dim)
        return functional.orders_of(given, self.dim, *self.orders())

    def forward(self, logits: Tensor) -> Tensor:
        # The map checks logits itself and keeps their dtype. A second check takes a tenth of a small batch's time.
        if self.dim != -1 or self._has_rows or type(self).probabilities is not SharmaMittal.probabilities:
            return super().forward(logits)
        q, r, temperature = self.orders()  # passing three names is faster than passing *orders
        return functional.sharmix(logits, q, r, temperature, nonconcave=self.nonconcave, masked_rows=self.masked_rows)

    def probabilities(self, logits: Tensor) -> Tensor:
        orders = self._orders_of(logits)
        return functional.sharmix(logits, *orders, nonconcave=self.nonconcave, masked_rows=self.masked_rows)

    def entropy(self, probabilities: Tensor) -> Tensor:
        regulariser = SharmaMittalRegulariser(*self._orders_of(probabilities), self.nonconcave)
        return regulariser.entropy(probabilities)

    def conjugate(self, logits: Tensor) -> Tensor:
        regulariser = SharmaMittalRegulariser(*self._orders_of(logits), self.nonconcave)
        return regulariser.conjugate(logits) + logits.detach().amax(-1)

    def _loss(self, logits: Tensor, targets: Tensor, **options: Unpack[LossOptions]) -> Tensor:
        q, r, temperature = self._orders_of(logits)
        if self.objective == "fenchel_young":
            return fenchel_young_loss(logits, targets, q, r, temperature, nonconcave=self.nonconcave, **options)
        if is_dtensor(logits):
            raise NotImplementedError(f"objective={self.objective!r} takes no DTensor; use 'fenchel_young'")
        orders = [order.detach() if isinstance(order, Tensor) else order for order in (q, r, temperature)]
        loss = fenchel_young_loss(logits, targets, *orders, nonconcave=self.nonconcave, **options)
        ignore_index, reduction = options.get("ignore_index", -100), options.get("reduction", "mean")
        z = widened(logits.detach())
        score = proper_score(self.objective, self.probabilities, z, targets.detach(), ignore_index, reduction)
        return loss + (score - score.detach()).to(loss.dtype)

    def _regulariser(self) -> SharmaMittalRegulariser | None:
        own = type(self).loss is Activation.loss and type(self)._loss is SharmaMittal._loss
        if not own or self.objective != "fenchel_young":
            return None
        q, r, temperature = (one_value(order, "order") for order in self.orders())
        return SharmaMittalRegulariser(q, r, temperature, self.nonconcave)

    def _loss_of_parts(self) -> Callable[..., Tensor]:
        for name in self._starts:
            one_value(getattr(self, name), name)
        return super()._loss_of_parts()

    def extra_repr(self) -> str:
        described = [f"{name}={_described(getattr(self, name))}" for name in self._starts]
        return ", ".join(filter(None, [*described, super().extra_repr()]))


def _on_the_cpu(order: Order) -> Order:
    """The order where a check may read it; a tensor that holds no values as it is."""
    return order.cpu() if isinstance(order, Tensor) and not order.is_meta else order


def _described(order: Order) -> str:
    if isinstance(order, Tensor) and (order.numel() > 1 or order.is_meta):
        return f"<{tuple(order.shape)}>"
    return f"{float(order.item() if isinstance(order, Tensor) else order):.6}"


@register("sparsemax")
class Sparsemax(SharmaMittal):
    """Sparsemax, the point of the simplex that is nearest to the logits. It is SharMiX at q = r = 2.

        p* = argmin over the simplex of  ‖p − z‖²

    Args:
        dim, masked_rows: as for `sharmix.sharmix`.

    Shape:
        logits (*, C, *), C classes along `dim`; probabilities the same.

    Example:
        >>> sharmix.Sparsemax()(torch.tensor([1.0, 0.5, -1.0]))
        tensor([0.7500, 0.2500, 0.0000])
    """

    def __init__(self, dim: int = -1, *, masked_rows: MaskedRows = "nan") -> None:
        super().__init__(dim, False, "fenchel_young", masked_rows=masked_rows)

    def _orders(self, *values: Order) -> tuple[Order, Order, Order]:
        return 2.0, 2.0, 1.0


@register("entmax")
@register("entmax_learned", learned=True)
class Entmax(SharmaMittal):
    """α-entmax, with a fixed or a learned order α. It is SharMiX at q = r = α.

        p* = argmax over the simplex of  p·z + (1 − Σ pᵢ^α)/(α(α − 1))

    With class indices as targets, a learned α rises under the Fenchel–Young loss, whatever the data.

    Args:
        alpha: α ≥ 1, a number or a tensor as q of `SharMiX`.
        learned, objective, dim, masked_rows: as for `SharMiX`; only `alpha` can be learned.

    Shape:
        logits (*, C, *), C classes along `dim`; probabilities the same.

    Example:
        >>> sharmix.Entmax(alpha=1.5, learned=True)
        Entmax(alpha=1.5, learned=('alpha',))
    """

    _starts = _learned_by_default = ("alpha",)
    _alpha = "alpha"  # the name in error messages

    def __init__(
        self,
        *,
        alpha: Order = 1.5,
        dim: int = -1,
        learned: bool | Sequence[str] = False,
        objective: Objective = "fenchel_young",
        masked_rows: MaskedRows = "nan",
    ) -> None:
        super().__init__(dim, learned, objective, masked_rows=masked_rows, alpha=alpha)

    def _check(self, starts: dict[str, Order]) -> None:
        checked(starts["alpha"], self._alpha)
        super()._check(starts)

    def _orders(self, *values: Order) -> tuple[Order, Order, Order]:
        (alpha,) = values
        return alpha, alpha, 1.0


@register("normmax")
class Normmax(Entmax):
    """α-normmax, with a fixed or a learned order α. It is SharMiX at q = α, r = 2 − 1/α, T₀ = α − 1.

        p* = argmax over the simplex of  p·z + 1 − ‖p‖_α

    With class indices as targets, a learned α falls under the Fenchel–Young loss, whatever the data.

    Args:
        alpha: α > 1. None means 2 for a fixed α, and 1.5 for a learned α, which stays below 2.
        learned, objective, dim, masked_rows: as for `Entmax`.

    Shape:
        logits (*, C, *), C classes along `dim`; probabilities the same.

    Example:
        >>> sharmix.Normmax()(torch.tensor([1.0, 0.5, -1.0]))
        tensor([0.6890, 0.3110, 0.0000])
    """

    _alpha = "alpha of normmax"

    def __init__(
        self,
        *,
        alpha: Order | None = None,
        dim: int = -1,
        learned: bool | Sequence[str] = False,
        objective: Objective = "fenchel_young",
        masked_rows: MaskedRows = "nan",
    ) -> None:
        start = (1.5 if learned else 2.0) if alpha is None else alpha
        super().__init__(alpha=start, dim=dim, learned=learned, objective=objective, masked_rows=masked_rows)

    def _orders(self, *values: Order) -> tuple[Order, Order, Order]:
        return functional.normmax_orders(*values)


@register("sharmix_fixed")
@register("sharmix_learned", learned=True)
class SharMiX(SharmaMittal):
    """The Sharma–Mittal map, with fixed or learned orders q and r.

        p* = argmax over the simplex of  p·z + (T₀/q) H_{q,r}(p)

    With class indices as targets, learned q and r rise under the Fenchel–Young loss, whatever the data, and a learned
    temperature falls. Each of these moves makes the loss smaller (docs/math.md, section 5).

    Args:
        q, r, temperature, dim, nonconcave, masked_rows: as for `sharmix.sharmix`; a tensor may hold an order for each
            head, for example.
        learned: which of q, r and the temperature are learned parameters: False for none, True for q and r, or names
            among `q`, `r` and `temperature`. The given values are their starts. After each step of a
            `torch.optim.Optimizer` that trains them, q and r lie in [1.01, 2), and the temperature in [0.1, 10).
        objective: the loss that trains the learned parameters: `fenchel_young`, the paper's choice, or a proper score,
            `brier` or `log`.

    Shape:
        logits (*, C, *), C classes along `dim`; probabilities the same.

    Example:
        >>> sharmix.SharMiX(q=1.25, r=1.5, learned=("q",))
        SharMiX(q=1.25, r=1.5, temperature=1.0, learned=('q',))
    """

    _starts = ("q", "r", "temperature")
    _learned_by_default = ("q", "r")

    def __init__(
        self,
        q: Order = 1.25,
        r: Order = USUAL_R,
        temperature: Order = 1.0,
        *,
        dim: int = -1,
        learned: bool | Sequence[str] = False,
        objective: Objective = "fenchel_young",
        nonconcave: Nonconcave = "global",
        masked_rows: MaskedRows = "nan",
    ) -> None:
        super().__init__(dim, learned, objective, nonconcave, masked_rows, q=q, r=r, temperature=temperature)

    def _orders(self, *values: Order) -> tuple[Order, Order, Order]:
        q, r, temperature = values
        return q, r, temperature


@register("alpha_relu")
class AlphaReLU(Activation):
    """α-ReLU, with a constant threshold τ. Its outputs need not sum to 1.

        pᵢ = [(α − 1) zᵢ − τ]₊^{1/(α−1)}

    Args:
        alpha, dim: α > 1, and the dimension that holds the classes.
        tau: τ, the threshold of (α − 1) z. With None the first batch in training mode sets it for good, to the mean
            α-entmax threshold of its rows. τ is part of the state dict.

    Shape:
        logits (*, C, *), C classes along `dim`; p the same.

    Example:
        >>> sharmix.AlphaReLU(alpha=1.5, tau=0.3)(torch.tensor([2.0, 1.0, -1.0]))
        tensor([0.4900, 0.0400, 0.0000])
    """

    normalised = False

    def __init__(self, *, alpha: float = 1.5, tau: float | None = None, dim: int = -1) -> None:
        super().__init__(dim)
        AlphaReLURegulariser(alpha, 0.0 if tau is None else tau)  # raises here, not at the first batch
        self.alpha = alpha
        self.calibrated = tau is not None
        self.tau: Tensor
        start = math.nan if tau is None else tau
        self.register_buffer("tau", start.detach().clone() if isinstance(start, Tensor) else torch.tensor(float(start)))

    def probabilities(self, logits: Tensor) -> Tensor:
        if not self._has_threshold():
            self._calibrate([logits])
        return functional.alpha_relu(logits, alpha=self.alpha, tau=self.tau)

    def entropy(self, probabilities: Tensor) -> Tensor:
        return AlphaReLURegulariser(self.alpha, self.tau).entropy(probabilities)

    def _loss(self, logits: Tensor, targets: Tensor, **options: Unpack[LossOptions]) -> Tensor:
        """The loss of `alpha_relu_loss`. The calibration, like the loss, leaves out ignored rows."""
        z = widened(classes_last(logits, "logits", -1))
        if not self._has_threshold():
            functional.alpha_relu_loss(
                z.detach(), targets, alpha=self.alpha, tau=0.0, **options
            )  # raises before it calibrates
            counted = z
            if not targets.is_floating_point():
                ignored = targets == options.get("ignore_index", -100)
                counted = torch.where(ignored.unsqueeze(-1), math.nan, z)
            self._calibrate([counted])
        return functional.alpha_relu_loss(z, targets, alpha=self.alpha, tau=self.tau, **options)

    def linear_loss(
        self,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        **options: Unpack[LinearLossOptions],
    ) -> Tensor:
        if not self._has_threshold() and not getattr(hidden, "is_meta", False):
            loss = partial(functional.alpha_relu_loss, alpha=self.alpha, tau=0.0)
            with torch.no_grad():  # raises before it calibrates
                _linear_loss.linear_loss(loss, [], hidden, weight, bias, targets, **options)
            some = hidden[targets != options.get("ignore_index", -100)]
            layer = as_autocast(some, weight, bias)
            self._calibrate(logits for _, logits in _layer_in_blocks.logits_in_parts(*layer))
        return super().linear_loss(hidden, weight, bias, targets, **options)

    def _has_threshold(self) -> bool:
        """Whether τ is set. Where `calibrated` is False, other code may have set it, as `AveragedModel` does."""
        return self.calibrated or not (self.tau.is_meta or torch.compiler.is_exporting() or not self.tau.isfinite())

    @torch.no_grad()
    def _calibrate(self, logits: Iterable[Tensor]) -> None:
        """Set τ to the mean α-entmax threshold over all rows of the parts of the logits, each [..., classes]."""
        if self.training and self.tau.is_meta:
            return  # there are no values to learn a threshold from
        if not self.training or torch.compiler.is_exporting() or is_dtensor(self.tau):
            raise RuntimeError("alpha-ReLU has no threshold yet; train on one batch (of no DTensors), or give tau")
        parts = (functional.alpha_relu_thresholds(part, self.alpha).flatten() for part in logits)
        of_rows = torch.cat([self.tau.new_empty(0), *parts])
        self.tau.copy_(of_rows[of_rows.isfinite()].mean())
        self.calibrated = bool(self.tau.isfinite())

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *arguments)
        self.calibrated = self.tau.is_meta or bool(self.tau.isfinite())

    def extra_repr(self) -> str:
        described = f"alpha={self.alpha}, tau={_described(self.tau) if self._has_threshold() else None}"
        return ", ".join(filter(None, [described, super().extra_repr()]))


@register("entmax_package")
class EntmaxPackage(Activation):
    """α-entmax, computed by the bisection of the `entmax` package: an outside baseline."""

    def __init__(self, *, alpha: float = 1.5, dim: int = -1) -> None:
        super().__init__(dim)
        from entmax import entmax_bisect

        self.alpha = checked(alpha, "alpha of the entmax package")
        self._bisect = entmax_bisect

    def probabilities(self, logits: Tensor) -> Tensor:
        shifted = logits - logits.detach().amax(-1, keepdim=True)  # the package is wrong by 3e-2 at an offset of 1e6
        return self._bisect(shifted, self.alpha, dim=-1)

    def entropy(self, probabilities: Tensor) -> Tensor:
        return functional.sharma_mittal_entropy(probabilities, self.alpha, self.alpha) / self.alpha
