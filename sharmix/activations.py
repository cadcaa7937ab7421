"""Output activations as modules: each a map and an entropy; the loss follows."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from sharmix._arguments import Parameter, entropy_parameters, float_tensor
from sharmix._learned_range import Learning, learned, limits
from sharmix.alpha_relu import (
    alpha_relu,
    alpha_relu_entropy,
    alpha_relu_loss,
    thresholds,
)
from sharmix.entropy import sharma_mittal_entropy
from sharmix.linear_loss import check_layer, linear_loss, logits_in_parts
from sharmix.losses import (
    Reduction,
    are_classes,
    at_class,
    check_reduction,
    check_targets,
    fenchel_young,
    fenchel_young_loss,
    map_entropy,
)
from sharmix.maps import Nonconcave, entmax, map_and_conjugate, sharmix, shifted
from sharmix.scores import proper_score

Objective = Literal["fenchel_young", "brier", "log"]


class Activation(nn.Module, ABC):
    """A map from logits to probabilities, with the Fenchel–Young loss of its entropy.

    A subclass gives `map` and `entropy`, where the map is argmax_p p·z + entropy(p); `forward` and `loss` follow. Its
    parameters, if any, are entropy parameters: trained at their own learning rate, and projected after each step.
    """

    normalised = True  # whether outputs lie on the simplex, and a constant added to the logits changes nothing

    @abstractmethod
    def map(self, logits: Tensor) -> Tensor:
        """Probabilities [..., classes] of float32 or float64 logits [..., classes]."""

    @abstractmethod
    def entropy(self, probabilities: Tensor) -> Tensor:
        """The concave function of probabilities [..., classes] that the map adds to p·z, [...].

        It does not depend on the order of the classes, and is 0 at one-hot where the map is `normalised`. A class of
        probability 0 adds nothing to it, and has a finite derivative where the map can be 0.
        """

    def conjugate(self, logits: Tensor) -> Tensor:
        """max_p p·z + entropy(p), [...]; its gradient with respect to the logits is the map."""
        probabilities = self.map(logits)
        return (probabilities * torch.where(probabilities > 0, logits, 0)).sum(-1) + self.entropy(probabilities)

    def class_loss(self, logits: Tensor, classes: Tensor) -> Tensor:
        """The loss [...] of logits [..., classes] whose target is one class, int64 [...]."""
        loss = self.conjugate(logits) - at_class(logits, classes)
        return loss if self.normalised else loss - self.entropy(logits.new_ones(1))

    def forward(self, logits: Tensor) -> Tensor:
        """Probabilities, shaped and typed like the logits [..., classes]; computed in float32 at least.

        Raises:
            TypeError: the logits are not floating-point numbers.
            ValueError: there are no classes.
        """
        return self.map(float_tensor(logits, "logits", -1)).to(logits.dtype)

    def loss(
        self,
        logits: Tensor,
        targets: Tensor,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        reduction: Reduction = "mean",
    ) -> Tensor:
        """The Fenchel–Young loss Ω*(z) − z·y + Ω(y), Ω = −entropy; arguments as for `fenchel_young_loss`."""
        z = float_tensor(logits, "logits", -1)
        return fenchel_young(
            shifted(z) if self.normalised else z,
            targets,
            self.class_loss,
            self.conjugate,
            self.entropy,
            ignore_index,
            label_smoothing,
            reduction,
        )

    def linear_loss(
        self,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        reduction: Reduction = "mean",
    ) -> Tensor:
        """`loss` of the logits hidden · weightᵀ + bias, without ever holding all of them: for large vocabularies.

        Args:
            hidden: [..., features], floating point.
            weight: [classes, features].
            bias: [classes], or None.
            targets: class indices [...] of an integer type.
            ignore_index, label_smoothing: as for `fenchel_young_loss`.
            reduction: `mean` over the rows not ignored, or `sum`.

        Returns, Raises: as `linear_fenchel_young_loss`.
        """

        def loss(logits: Tensor, classes: Tensor, reduction: Reduction) -> Tensor:
            return self.loss(logits, classes, ignore_index, label_smoothing, reduction)

        return linear_loss(loss, list(self.parameters()), hidden, weight, bias, targets, ignore_index, reduction)

    def entropy_parameters(self) -> list[nn.Parameter]:
        """The learned parameters, for a learning rate of their own."""
        return list(self.parameters())

    @torch.no_grad()
    def project_(self) -> None:
        """Put every learned parameter back into [1.01, 2), the paper's rule after each step.

        The library's own activations keep their ranges without it.
        """
        for parameter in self.entropy_parameters():
            parameter.clamp_(*limits("q", parameter.dtype))


class Softmax(Activation):
    """Softmax, with the Shannon entropy; its loss is cross-entropy."""

    def map(self, logits: Tensor) -> Tensor:
        return logits.softmax(-1)

    def entropy(self, probabilities: Tensor) -> Tensor:
        return sharma_mittal_entropy(probabilities, 1.0, 1.0)

    def conjugate(self, logits: Tensor) -> Tensor:
        return logits.logsumexp(-1)

    def class_loss(self, logits: Tensor, classes: Tensor) -> Tensor:
        rows = logits.reshape(-1, logits.shape[-1])
        return cross_entropy(rows, classes.flatten(), reduction="none").reshape(classes.shape)

    def loss(
        self,
        logits: Tensor,
        targets: Tensor,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        reduction: Reduction = "mean",
    ) -> Tensor:
        z = float_tensor(logits, "logits", -1)
        check_reduction(reduction)
        check_targets(z, targets)
        if label_smoothing or targets.is_floating_point() or not are_classes(targets, z, ignore_index):
            return super().loss(logits, targets, ignore_index, label_smoothing, reduction)
        if z.dim() == 2:  # the usual case, without views, which would be nodes of the graph
            return cross_entropy(z, targets.long(), reduction=reduction)
        loss = cross_entropy(z.reshape(-1, z.shape[-1]), targets.long().flatten(), reduction=reduction)
        return loss.reshape(targets.shape) if reduction == "none" else loss


class SharmaMittal(Activation):
    """What all maps of the Sharma–Mittal family share; a subclass names its orders (q, r)."""

    def __init__(self, temperature: float = 1.0, nonconcave: Nonconcave = "global") -> None:
        super().__init__()
        self.temperature = temperature
        self.nonconcave = nonconcave

    @abstractmethod
    def orders(self) -> tuple[Parameter, Parameter]:
        """(q, r): numbers, or tensors that broadcast against the logits with size 1 in the last dimension."""

    def _check(self) -> None:
        """Raise at construction, not at the first batch, if an argument is not allowed."""
        shapes = [order.shape for order in self.orders() if isinstance(order, Tensor)]
        self(torch.zeros(torch.broadcast_shapes((1, 1), *shapes)))  # type: ignore[no-untyped-call]

    def map(self, logits: Tensor) -> Tensor:
        q, r = self.orders()
        return sharmix(logits, q, r, self.temperature, nonconcave=self.nonconcave)

    def entropy(self, probabilities: Tensor) -> Tensor:
        return map_entropy(probabilities, *self.orders(), self.temperature)

    def conjugate(self, logits: Tensor) -> Tensor:
        q, r = self.orders()
        parameters = entropy_parameters(logits, -1, q=q, r=r, temperature=self.temperature)
        return map_and_conjugate(logits, parameters, self.nonconcave)[1] + logits.detach().amax(-1)

    def loss(
        self,
        logits: Tensor,
        targets: Tensor,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        reduction: Reduction = "mean",
    ) -> Tensor:
        return fenchel_young_loss(
            logits, targets, *self.orders(), self.temperature, ignore_index, label_smoothing, reduction, self.nonconcave
        )


class Sparsemax(SharmaMittal):
    """Sparsemax: q = r = 2."""

    def orders(self) -> tuple[Parameter, Parameter]:
        return 2.0, 2.0


class Entmax(SharmaMittal):
    """α-entmax with a fixed α ≥ 1: q = r = α."""

    def __init__(self, alpha: float = 1.5) -> None:
        super().__init__()
        self.alpha = alpha
        entmax(torch.zeros(1, 1), alpha)  # raises here, not at the first batch, if alpha is not allowed

    def orders(self) -> tuple[Parameter, Parameter]:
        return self.alpha, self.alpha


class SharMiX(SharmaMittal):
    """The Sharma–Mittal map with fixed (q, r); arguments as for `sharmix.sharmix`."""

    def __init__(
        self, q: float = 1.25, r: float = 1.5, temperature: float = 1.0, nonconcave: Nonconcave = "global"
    ) -> None:
        super().__init__(temperature, nonconcave)
        self.q, self.r = q, r
        self._check()

    def orders(self) -> tuple[Parameter, Parameter]:
        return self.q, self.r


class LearnedSharmaMittal(SharmaMittal, Learning):
    """A Sharma–Mittal map whose orders are trained.

    `objective` says by what. Under `fenchel_young`, the paper's choice, the loss itself trains them, and they rise
    whatever the data (`math` section 5). Under `brier` or `log` they get the gradient of that proper score of p,
    through the map's Jacobians, against the targets as given, without label smoothing; the loss keeps its value, and
    the logits their gradient p − y. The mean of the log score is over the rows that it counts, which `linear_loss` does
    not know beforehand: there it is over all rows not ignored.
    """

    def __init__(self, temperature: float, nonconcave: Nonconcave, objective: Objective) -> None:
        super().__init__(temperature, nonconcave)
        if objective not in get_args(Objective):
            allowed = ", ".join(get_args(Objective))
            raise ValueError(f"objective={objective!r} is not allowed; it must be one of {allowed}")
        self.objective: Objective = objective

    def loss(
        self,
        logits: Tensor,
        targets: Tensor,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        reduction: Reduction = "mean",
    ) -> Tensor:
        if self.objective == "fenchel_young":
            return super().loss(logits, targets, ignore_index, label_smoothing, reduction)
        q, r = (order.detach() if isinstance(order, Tensor) else order for order in self.orders())
        loss = fenchel_young_loss(
            logits, targets, q, r, self.temperature, ignore_index, label_smoothing, reduction, self.nonconcave
        )
        score = proper_score(self.objective, self.map, logits.detach(), targets, ignore_index, reduction)
        return loss + score - score.detach()


class LearnedEntmax(LearnedSharmaMittal):
    """α-entmax with a learned α that starts at `alpha`; one value, or a tensor of them that broadcasts."""

    def __init__(self, alpha: Parameter = 1.5, objective: Objective = "fenchel_young") -> None:
        super().__init__(1.0, "global", objective)
        self.alpha = learned("alpha", alpha)
        self._check()

    def orders(self) -> tuple[Parameter, Parameter]:
        return self.alpha, self.alpha


class LearnedSharMiX(LearnedSharmaMittal):
    """SharMiX with learned (q, r) that start at the values given; each one value, or a tensor that broadcasts."""

    def __init__(
        self,
        q: Parameter = 1.25,
        r: Parameter = 1.5,
        temperature: float = 1.0,
        objective: Objective = "fenchel_young",
        nonconcave: Nonconcave = "global",
    ) -> None:
        super().__init__(temperature, nonconcave, objective)
        self.q, self.r = learned("q", q), learned("r", r)
        self._check()

    def orders(self) -> tuple[Parameter, Parameter]:
        return self.q, self.r


class AlphaReLU(Activation):
    """α-ReLU, unnormalised, with a constant threshold τ.

    Args:
        alpha: α > 1.
        tau: τ; None calibrates it on the first batch seen in training, to that batch's mean α-entmax threshold in the
            logits' own coordinates. From then on it is frozen; it is part of the state dict.
    """

    normalised = False

    def __init__(self, alpha: float = 1.5, tau: float | None = None) -> None:
        super().__init__()
        self.alpha = alpha
        self.calibrated = tau is not None
        self.tau: Tensor
        self.register_buffer("tau", torch.tensor(math.nan if tau is None else tau))
        alpha_relu(torch.zeros(1, 1), alpha)  # raises here, not at the first batch, if alpha is not allowed

    def map(self, logits: Tensor) -> Tensor:
        self._calibrate([logits])
        return alpha_relu(logits, self.alpha, self.tau)

    def entropy(self, probabilities: Tensor) -> Tensor:
        return alpha_relu_entropy(probabilities, self.alpha, self.tau)

    def loss(
        self,
        logits: Tensor,
        targets: Tensor,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        reduction: Reduction = "mean",
    ) -> Tensor:
        """The loss of `alpha_relu_loss`; rows ignored take no part in the calibration either."""
        if not self.calibrated:
            z = float_tensor(logits, "logits", -1)
            alpha_relu_loss(z, targets, self.alpha, 0.0, ignore_index, label_smoothing, reduction)  # raises first
            soft = targets.is_floating_point()
            self._calibrate([z if soft else torch.where((targets == ignore_index).unsqueeze(-1), math.nan, z)])
        return alpha_relu_loss(logits, targets, self.alpha, self.tau, ignore_index, label_smoothing, reduction)

    def linear_loss(
        self,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        reduction: Reduction = "mean",
    ) -> Tensor:
        first = not self.calibrated
        if first:
            check_layer(hidden, weight, bias, targets)
            with torch.no_grad():
                parts = logits_in_parts(hidden[targets != ignore_index], weight, bias)
                self._calibrate(logits for _, logits in parts)
        try:
            return super().linear_loss(hidden, weight, bias, targets, ignore_index, label_smoothing, reduction)
        except (TypeError, ValueError):
            if first:  # what is refused calibrates nothing
                self.tau.fill_(math.nan)
                self.calibrated = False
            raise

    @torch.no_grad()
    def _calibrate(self, logits: Iterable[Tensor]) -> None:
        """Set the threshold to the mean over all rows of logits, which come in parts."""
        if self.calibrated:
            return
        if not self.training:
            raise RuntimeError("alpha-ReLU has no threshold yet; run one batch in training mode, or give tau")
        of_rows = torch.cat([self.tau.new_empty(0), *(thresholds(part, self.alpha).flatten() for part in logits)])
        self.tau.copy_(of_rows[of_rows.isfinite()].mean())
        self.calibrated = bool(self.tau.isfinite())

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *arguments)
        self.calibrated = bool(self.tau.isfinite())


class EntmaxPackage(Activation):
    """α-entmax by the bisection of the `entmax` package, as an outside baseline, with its map as it is.

    Logits are shifted by their maximum first, which the package does not do: at an offset of 1e6 it is 3e-2 off.
    """

    def __init__(self, alpha: float = 1.5) -> None:
        super().__init__()
        try:
            from entmax import entmax_bisect
        except ImportError as error:
            raise ImportError("activation entmax_package needs the entmax package: pip install entmax") from error
        if not alpha > 1:
            raise ValueError(f"alpha={alpha!r} is not allowed; the entmax package needs alpha > 1")
        self.alpha = alpha
        self._bisect = entmax_bisect

    def map(self, logits: Tensor) -> Tensor:
        probabilities: Tensor = self._bisect(shifted(logits), self.alpha, dim=-1)
        return probabilities

    def entropy(self, probabilities: Tensor) -> Tensor:
        return sharma_mittal_entropy(probabilities, self.alpha, self.alpha) / self.alpha
