"""The losses as modules, with the arguments of `torch.nn.CrossEntropyLoss`."""

from collections.abc import Sequence
from typing import Any, Unpack

from torch import Tensor, nn

from sharmix._activation import Activation
from sharmix._arguments import Order, may_read
from sharmix._caller import current_caller
from sharmix._fenchel_young import LossOptions, checked_options
from sharmix._targets import check_shape
from sharmix._warn import warn
from sharmix.activations import AlphaReLU, Entmax, Normmax, Objective, SharMiX, Sparsemax
from sharmix.functional import Nonconcave
from sharmix.registry import build_activation


class FenchelYoungLoss(nn.Module):
    """The Fenchel–Young loss of an activation, with the arguments and layouts of `torch.nn.CrossEntropyLoss`.

        L(z, y) = Ω*(z) − z·y + Ω(y),      with class weights w:  s L(z, w∘y/s),  s = Σ wᵢyᵢ

    Ω is minus the entropy of the activation, and Ω* its conjugate.

    Args:
        activation: an activation module, or a name that `build_activation` accepts. `criterion.activation(logits)`
            gives the probabilities, for classes in the last dimension. For logits (N, C, d₁, …) these are
            `criterion.activation(logits.movedim(1, -1)).movedim(-1, 1)`.
        weight, ignore_index, reduction, label_smoothing: as for `torch.nn.CrossEntropyLoss`; see `LossOptions`.

    Shape:
        logits (N, C), (C) or (N, C, d₁, …) with C classes; targets: class indices (N), () or (N, d₁, …), or
        probabilities with the shape of the logits. The loss is a scalar, or has the shape of class indices.

    Raises:
        TypeError, ValueError: as for `fenchel_young_loss`. The constructor raises them for an option.

    Warns:
        UserWarning: once, if the first logits on the CPU are probabilities; with SHARMIX_CHECK=1, also on a GPU.

    Example:
        >>> criterion = sharmix.FenchelYoungLoss("sparsemax", label_smoothing=0.1)
        >>> criterion(torch.tensor([[1.0, 0.5, -1.0]]), torch.tensor([0])).shape
        torch.Size([])
    """

    def __init__(
        self,
        activation: Activation | str,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        self.activation = build_activation(activation) if isinstance(activation, str) else activation
        if not isinstance(self.activation, Activation):
            raise TypeError(f"activation must be a name or an instance of sharmix.Activation, got {activation!r}")
        if self.activation.dim != -1:
            raise ValueError(f"dim={self.activation.dim} of the activation is not allowed in a criterion")
        self.weight: Tensor | None
        self.register_buffer("weight", weight)
        self.ignore_index = checked_options(ignore_index, label_smoothing, reduction)
        self.reduction, self.label_smoothing = reduction, label_smoothing
        self._may_warn = True

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The loss of logits against targets, after `reduction`."""
        z = logits
        if isinstance(logits, Tensor) and logits.dim() > 2:  # (N, C, d₁, …)
            if isinstance(targets, Tensor):
                check_shape(logits, targets, 1)
                targets = targets.movedim(1, -1) if targets.is_floating_point() else targets
            z = logits.movedim(1, -1)
        options: dict[str, Any] = {name: getattr(self, name) for name in LossOptions.__annotations__}
        loss = self.activation.loss(z, targets, **options)
        if self._may_warn:
            self._warn_of_probabilities(logits)
        return loss

    def _warn_of_probabilities(self, logits: Tensor) -> None:
        if not may_read(logits) or not current_caller().can_read_values:
            return
        self._may_warn = False
        rows = logits.detach().float().movedim(1 if logits.dim() > 1 else 0, -1)
        if rows.numel() and rows.shape[-1] > 1 and (rows >= 0).all() and ((rows.sum(-1) - 1).abs() < 1e-2).all():
            message = f"the logits given to {type(self).__name__} are probabilities: each row is >= 0 and sums to 1"
            warn(f"{message}. Leave out the softmax before the loss.")

    def extra_repr(self) -> str:
        usual = {"ignore_index": -100, "reduction": "mean", "label_smoothing": 0.0}
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in usual if getattr(self, name) != usual[name])


def _of_activation(name: str) -> property:
    """An attribute of the activation, which is set there."""
    doc = f"`{name}` of the activation.\n\n:meta private:"  # else the API has several targets of one name
    return property(lambda criterion: getattr(criterion.activation, name), doc=doc)


class SharMiXLoss(FenchelYoungLoss):
    """The loss of SharMiX, with fixed or learned orders q and r.

        L(z, y) = p*·z + (T₀/q) H_{q,r}(p*) − z·y − (T₀/q) H_{q,r}(y)

    With class indices as targets, learned q and r rise under this loss, whatever the data.

    Args:
        q, r, temperature, learned, objective, nonconcave: as for `SharMiX`. A tensor of orders broadcasts against the
            logits with the classes moved last, (N, d₁, …, C), with size 1 for C.
        **options: `weight`, `ignore_index`, `reduction` and `label_smoothing`, as for `FenchelYoungLoss`.

    Shape:
        logits (N, C), (C) or (N, C, d₁, …), C classes; targets and loss as for `FenchelYoungLoss`.

    Example:
        >>> criterion = sharmix.SharMiXLoss(q=1.5, r=2.0)
        >>> criterion(torch.tensor([[2.0, 1.0, -1.0]]), torch.tensor([0]))
        tensor(0.0455)
    """

    def __init__(
        self,
        q: Order = 1.25,
        r: Order = 1.5,
        temperature: Order = 1.0,
        *,
        learned: bool | Sequence[str] = False,
        objective: Objective = "fenchel_young",
        nonconcave: Nonconcave = "global",
        **options: Unpack[LossOptions],
    ) -> None:
        activation = SharMiX(q, r, temperature, learned=learned, objective=objective, nonconcave=nonconcave)
        super().__init__(activation, **options)

    q, r, temperature = map(_of_activation, ("q", "r", "temperature"))


class EntmaxLoss(FenchelYoungLoss):
    """The loss of α-entmax, with a fixed or a learned order α.

        L(z, y) = p*·z + H_α(p*) − z·y − H_α(y),      H_α(p) = (1 − Σ pᵢ^α)/(α(α − 1))

    With class indices as targets, a learned α rises under this loss, whatever the data.

    Args:
        alpha, learned, objective: as for `Entmax`; a tensor of orders as for `SharMiXLoss`.
        **options: as for `SharMiXLoss`.

    Shape:
        logits (N, C), (C) or (N, C, d₁, …), C classes; targets and loss as for `FenchelYoungLoss`.

    Example:
        >>> sharmix.EntmaxLoss(alpha=1.5)(torch.tensor([[2.0, 1.0, -1.0]]), torch.tensor([0]))
        tensor(0.0617)
    """

    def __init__(
        self,
        *,
        alpha: Order = 1.5,
        learned: bool | Sequence[str] = False,
        objective: Objective = "fenchel_young",
        **options: Unpack[LossOptions],
    ) -> None:
        super().__init__(Entmax(alpha=alpha, learned=learned, objective=objective), **options)

    alpha = _of_activation("alpha")


class NormmaxLoss(FenchelYoungLoss):
    """The loss of α-normmax, with a fixed or a learned order α.

        L(z, y) = p*·z − ‖p*‖_α − z·y + ‖y‖_α

    With class indices as targets, a learned α falls under this loss, whatever the data.

    Args:
        alpha, learned, objective: as for `Normmax`; a tensor of orders as for `SharMiXLoss`.
        **options: as for `SharMiXLoss`.

    Shape:
        logits (N, C), (C) or (N, C, d₁, …), C classes; targets and loss as for `FenchelYoungLoss`.

    Example:
        >>> sharmix.NormmaxLoss()(torch.tensor([[1.0, 0.5, -1.0]]), torch.tensor([0]))
        tensor(0.0886)
    """

    def __init__(
        self,
        *,
        alpha: Order | None = None,
        learned: bool | Sequence[str] = False,
        objective: Objective = "fenchel_young",
        **options: Unpack[LossOptions],
    ) -> None:
        super().__init__(Normmax(alpha=alpha, learned=learned, objective=objective), **options)

    alpha = _of_activation("alpha")


class SparsemaxLoss(FenchelYoungLoss):
    """The loss of sparsemax.

        L(z, y) = ½‖y − z‖² − ½‖p* − z‖²

    Args:
        **options: as for `SharMiXLoss`.

    Shape:
        logits (N, C), (C) or (N, C, d₁, …), C classes; targets and loss as for `FenchelYoungLoss`.

    Example:
        >>> sharmix.SparsemaxLoss()(torch.tensor([[1.0, 0.5, -1.0]]), torch.tensor([0]))
        tensor(0.0625)
    """

    def __init__(self, **options: Unpack[LossOptions]) -> None:
        super().__init__(Sparsemax(), **options)


class AlphaReLULoss(FenchelYoungLoss):
    """The loss of α-ReLU.

        ℓ(z, y) = Σ uⱼ^{α/(α−1)}/α − z·y + τ Σ yⱼ/(α−1) + Σ yⱼ^α/(α(α−1)),      u = [(α−1) z − τ]₊

    Args:
        alpha, tau: as for `AlphaReLU`.
        **options: as for `SharMiXLoss`.

    Shape:
        logits (N, C), (C) or (N, C, d₁, …), C classes; targets and loss as for `FenchelYoungLoss`.

    Example:
        >>> z = torch.tensor([[2.0, 1.0, -1.0]])
        >>> sharmix.AlphaReLULoss(tau=0.3)(z, torch.tensor([0]))
        tensor(0.1673)
    """

    def __init__(self, *, alpha: float = 1.5, tau: float | None = None, **options: Unpack[LossOptions]) -> None:
        super().__init__(AlphaReLU(alpha=alpha, tau=tau), **options)

    alpha, tau = map(_of_activation, ("alpha", "tau"))
