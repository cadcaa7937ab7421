"""Fenchel–Young losses: the loss that belongs to a map, with gradient p − y."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from sharmix._arguments import Parameter, checked_classes, checked_distribution, entropy_parameters, float_tensor
from sharmix._backend import node
from sharmix._class_loss import class_loss, is_fused
from sharmix._operators import readable, watched
from sharmix.entropy import sharma_mittal_entropy
from sharmix.maps import Nonconcave, map_and_conjugate, shifted

Reduction = Literal["none", "mean", "sum"]


def fenchel_young_loss(
    logits: Tensor,
    targets: Tensor,
    q: Parameter = 1.25,
    r: Parameter = 1.5,
    temperature: Parameter = 1.0,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: Reduction = "mean",
    nonconcave: Nonconcave = "global",
) -> Tensor:
    """The Fenchel–Young loss of the Sharma–Mittal map.

        L(z, y) = p*·z + (T₀/q) H_{q,r}(p*) − z·y − (T₀/q) H_{q,r}(y),     p* = sharmix(z, q, r, T₀)

    L ≥ 0, and L = 0 exactly where p* = y. Its gradient with respect to the logits is p* − y, and with respect to q, r
    and T₀ that of T₀ H_{q,r}/q at p* less that at y (envelope theorem). (1, 1) is cross-entropy less the entropy of y.

    Args:
        logits: z, [..., classes], floating point; half precision is computed, and the loss returned, in float32.
        targets: y, class indices [...] of an integer type, or probabilities shaped like the logits.
        q, r, temperature: numbers or tensors that broadcast against the logits with size 1 in the last dimension.
        ignore_index: class index of rows that count for nothing, neither in the loss nor in the mean.
        label_smoothing: ε in [0, 1]; y becomes (1 − ε) y + ε/classes.
        reduction: `none` (a loss a row), `mean` over the rows not ignored (0 if there is none), or `sum`.
        nonconcave: as for `sharmix`.

    Returns:
        The loss, a scalar or [...].

    Raises:
        TypeError: logits or targets of the wrong kind.
        ValueError: a value, label or shape that is not allowed.

    Source: Blondel, Martins and Niculae (2020); `math` section 5. The SharMiX paper's appendix B.1 misses −z·y.
    """
    if label_smoothing == 0 and is_fused(logits, targets):
        z = readable(logits, -1)
        graph = node() if nonconcave == "global" else None
        loss: Tensor | None = graph.loss(z, q, r, temperature, targets, ignore_index, reduction) if graph else None
        if loss is not None:
            return loss
        parameters = entropy_parameters(z, -1, q=q, r=r, temperature=temperature)
        check_targets(z, targets)
        check_reduction(reduction)
        return class_loss(z, targets.long(), parameters, ignore_index, reduction, nonconcave)
    z = float_tensor(logits, "logits", -1)
    parameters = entropy_parameters(z, -1, q=q, r=r, temperature=temperature)

    def conjugate(x: Tensor) -> Tensor:
        return map_and_conjugate(x, parameters, nonconcave)[1]

    def composed_loss(x: Tensor, classes: Tensor) -> Tensor:
        return conjugate(x) - at_class(x, classes)

    def entropy(y: Tensor) -> Tensor:
        return map_entropy(y, q, r, temperature)

    return fenchel_young(
        shifted(z), targets, composed_loss, conjugate, entropy, ignore_index, label_smoothing, reduction
    )


def map_entropy(probabilities: Tensor, q: Parameter, r: Parameter, temperature: Parameter) -> Tensor:
    """(T₀/q) H_{q,r}(p), what the Sharma–Mittal map adds to p·z.

    Args:
        probabilities: [..., classes], or fewer rows that stand for all that the parameters have.
        q, r, temperature: numbers or tensors with size 1 in the last dimension.

    Returns:
        The entropy of each row, [...].
    """
    shapes = [parameter.shape for parameter in (q, r, temperature) if isinstance(parameter, Tensor)]
    rows = torch.broadcast_shapes((*probabilities.shape[:-1], 1), *shapes)[:-1]  # type: ignore[no-untyped-call]
    weight = temperature / q
    weight = weight.squeeze(-1) if isinstance(weight, Tensor) and weight.dim() else weight
    return weight * sharma_mittal_entropy(probabilities.expand(*rows, -1), q, r)


def fenchel_young(
    logits: Tensor,
    targets: Tensor,
    class_loss: Callable[[Tensor, Tensor], Tensor],
    conjugate: Callable[[Tensor], Tensor],
    entropy: Callable[[Tensor], Tensor],
    ignore_index: int,
    label_smoothing: float,
    reduction: Reduction,
) -> Tensor:
    """L(z, y) = Ω*(z) − z·y + Ω(y) for any regulariser Ω.

    Args:
        logits: z, [..., classes], float32 or float64.
        targets: class indices [...] or probabilities [..., classes].
        class_loss: the loss where y is one-hot, of logits and class indices [...].
        conjugate: Ω*, from [..., classes] to [...]; its gradient is the map.
        entropy: −Ω, likewise; it does not depend on the order of the classes.
        ignore_index, label_smoothing, reduction: as for `fenchel_young_loss`.

    Returns:
        The loss, a scalar or [...].

    Raises:
        TypeError, ValueError: as for `fenchel_young_loss`.
    """
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing={label_smoothing!r} is not allowed; it must be between 0 and 1")
    check_reduction(reduction)
    check_targets(logits, targets)
    if targets.is_floating_point():
        loss = _soft_loss(logits, targets, conjugate, entropy, label_smoothing)
        counted = torch.ones_like(loss, dtype=torch.bool)
    elif not label_smoothing and are_classes(targets, logits, ignore_index):
        loss, counted = class_loss(logits, targets.long()), None
    else:
        loss, counted = _index_loss(logits, targets, class_loss, conjugate, entropy, ignore_index, label_smoothing)
    # Rounding can leave a loss of −1e-17 at p = y; its value is 0 there, its gradient stays.
    loss = loss - loss.detach().clamp_max(0)
    return reduced(loss, counted, reduction)


def check_reduction(reduction: str) -> None:
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"reduction={reduction!r} is not allowed; it must be 'none', 'mean' or 'sum'")


def check_targets(logits: Tensor, targets: Tensor, name: str = "logits") -> None:
    """Raise TypeError or ValueError if the targets are of a kind, shape or device that does not go with the logits."""
    if not isinstance(targets, Tensor):
        raise TypeError(f"targets must be a tensor of class indices or probabilities, got {type(targets).__name__}")
    if targets.dtype == torch.bool or targets.is_complex():
        raise TypeError(f"targets must be class indices of an integer type or probabilities, got {targets.dtype}")
    if targets.device != logits.device:
        raise ValueError(f"targets are on {targets.device}, but {name} on {logits.device}; move one of them")
    if targets.is_floating_point() and targets.shape != logits.shape:
        raise ValueError(
            f"soft targets of shape {tuple(targets.shape)} do not match logits of shape {tuple(logits.shape)}; "
            "they must be equal (class indices are of an integer type)"
        )
    if not targets.is_floating_point() and targets.shape != logits.shape[:-1]:
        raise ValueError(
            f"class indices of shape {tuple(targets.shape)} do not match {name} of shape {tuple(logits.shape)}; "
            f"they must be of shape {tuple(logits.shape[:-1])}"
        )


def are_classes(targets: Tensor, logits: Tensor, ignore_index: int) -> bool:
    """Whether there are targets, each is one of the classes, none is ignored, and it can be told."""
    classes = logits.shape[-1]
    if watched((logits, targets)) or targets.is_meta or targets.numel() == 0 or 0 <= ignore_index < classes:
        return False
    # As int64: torch compares no unsigned integers of more than eight bits. As one list: a GPU is waited for once.
    lowest, highest = torch.stack(targets.long().aminmax()).tolist()
    return bool(lowest >= 0 and highest < classes)


def reduced(rows: Tensor, counted: Tensor | None, reduction: Reduction) -> Tensor:
    """The rows themselves, their sum, or their mean over the rows counted (0 if there is none; None counts all)."""
    if reduction == "none":
        return rows
    if reduction == "sum":
        return rows.sum()
    return rows.mean() if counted is None else rows.sum() / counted.sum().clamp_min(1)


def _soft_loss(
    logits: Tensor,
    targets: Tensor,
    conjugate: Callable[[Tensor], Tensor],
    entropy: Callable[[Tensor], Tensor],
    label_smoothing: float,
) -> Tensor:
    valid = checked_distribution(targets)
    y = targets.to(logits.dtype)
    y = (1 - label_smoothing) * y + label_smoothing / logits.shape[-1]
    # −∞ is harmless on a class that is no target
    agreement = (torch.where(y > 0, logits, 0) * y).sum(-1)
    return (conjugate(logits) - agreement - entropy(y)) * valid


def _index_loss(
    logits: Tensor,
    targets: Tensor,
    class_loss: Callable[[Tensor, Tensor], Tensor],
    conjugate: Callable[[Tensor], Tensor],
    entropy: Callable[[Tensor], Tensor],
    ignore_index: int,
    label_smoothing: float,
) -> tuple[Tensor, Tensor]:
    """The loss of each row, 0 where ignored, and which rows count."""
    classes, targets = logits.shape[-1], targets.long()
    indices = checked_classes(targets, classes, ignore_index)
    counted = targets != ignore_index
    if logits.is_meta or watched((logits, targets)) or not counted.all():
        logits = torch.where(counted.unsqueeze(-1), logits, 0)  # what an ignored row holds, even NaN, must not matter
    if label_smoothing > 0:
        agreement = (1 - label_smoothing) * at_class(logits, indices) + label_smoothing * logits.mean(-1)
        smoothed = logits.new_full((classes,), label_smoothing / classes)
        smoothed[0] += 1 - label_smoothing
        loss = conjugate(logits) - agreement - entropy(smoothed)
    else:
        loss = class_loss(logits, indices)
    return torch.where(counted, loss, 0), counted


def at_class(logits: Tensor, classes: Tensor) -> Tensor:
    """z_y: the logit of each row [..., classes] at its class index, int64 [...]."""
    # Indexing keeps the indices alone for the backward pass; gathering would keep the logits.
    starts = torch.arange(0, logits.numel(), logits.shape[-1], device=logits.device)
    return logits.flatten().index_select(0, starts + classes.flatten()).reshape(classes.shape)
