"""Sparse losses of logits whose classes are split over the processes of a group, as in tensor parallelism.

Cross-entropy needs three all-reduces for such logits, one after the other. A sparse loss needs one all-gather of a few
numbers a row where the support is small, and its gradient needs no communication.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Unpack

import torch
import torch.distributed as dist
from torch import Tensor

from sharmix import _linear_loss
from sharmix._activation import Activation
from sharmix._arguments import Order, as_tensor, classes_last, number, one_value
from sharmix._caller import current_caller
from sharmix._fenchel_young import (
    LossOptions,
    Reduction,
    UnweightedLossOptions,
    check_indices,
    check_options,
    check_weight,
    reduced,
)
from sharmix._mathematics.entropy import renyi_entropy, sharma_mittal_of_renyi
from sharmix._operators import shared_classes
from sharmix._operators.autograd import Orders
from sharmix._private_torch import process_group
from sharmix.activations import SharmaMittal
from sharmix.criteria import FenchelYoungLoss

__all__ = ["VocabParallelLoss", "vocab_parallel_linear_loss", "vocab_parallel_loss"]

_FEWEST, _MOST = 8, 64  # candidates that a criterion chooses from


def vocab_parallel_loss(
    local_logits: Tensor,
    targets: Tensor,
    q: Order = 1.25,
    r: Order = 1.5,
    temperature: Order = 1.0,
    *,
    group: dist.ProcessGroup | None = None,
    sizes: Sequence[int] | None = None,
    candidates: int = 32,
    **options: Unpack[LossOptions],
) -> Tensor:
    """The Fenchel–Young loss of the Sharma–Mittal map, of logits whose classes are split over a process group.

    The value and the gradients are the same as for `fenchel_young_loss` of the whole logits, which no process holds.
    With q = r = α it is the loss of α-entmax, with q = r = 2 of sparsemax, and with r = 2 − 1/α and T₀ = α − 1 of
    α-normmax.

    Each process sends its K largest logits of each row, and the target's logit, to all others in one all-gather. If
    the K-th of every process has probability 0, in every row, this is the only communication: all processes know the
    whole support, and each computes the gradient p − y of its own logits. The other rows are solved together by
    Newton's method. Each step is one all-reduce of four numbers a row, and reads the logits of these rows. At most 7
    steps are usual for q ≤ 2, some more for a larger q, and a learned q needs one all-reduce more.

    Each process gets the gradient of its own logits. So the gradient of the layer's input is split over the processes,
    and its parts must be added. `ColwiseParallel` and `vocab_parallel_linear_loss` do this; a layer of your own needs
    an all-reduce.

    Args:
        local_logits: this process's part of z, [..., classes of this process], floating point. For half precision the
            loss is computed and returned in float32.
        targets: indices among all classes, [...], of an integer type, the same on every process.
        q, r, temperature: numbers, or tensors of one element, the same on every process, learned on all or on none;
            1 < q ≤ 3 and r ≥ 2 − 1/q. Learned orders get their full gradient on every process.
        group: the process group; the default one if None. Tests use gloo; NCCL is untested. Its machines must be of one
            kind, because all processes decide alike from the same numbers.
        sizes: the number of classes on each process, the same list on every process. None means equal numbers.
        candidates: K, the same on every process. The support of a row should have fewer classes on each process.
        **options: as for `fenchel_young_loss`. `weight` holds the weights of all classes.

    Returns:
        The loss, a scalar, or [...] with `reduction="none"`, the same on every process. It cannot be differentiated
        twice.

    Raises:
        TypeError: the logits or targets are of the wrong type.
        ValueError: a value, a label or a shape is not allowed, which learned orders can also reach in training; or the
            processes give different targets, for equally many rows, or different orders. For q = 1, softmax, use
            `torch.distributed.tensor.parallel.loss_parallel`.
        RuntimeError: there is no process group, or another process of it has ended.

    Source: docs/math.md, sections 2, 3 and 5.

    Example:
        >>> import sharmix.parallel, torch.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> z, y = torch.tensor([[2.0, 1.0, -1.0]]), torch.tensor([0])
        >>> sharmix.parallel.vocab_parallel_loss(z, y, q=1.5, r=2.0)
        tensor(0.0455)
        >>> dist.destroy_process_group()
    """
    return _loss(local_logits, targets, (q, r, temperature), group, sizes, candidates, **options)[0]


def _loss(
    local_logits: Tensor,
    targets: Tensor,
    orders: Orders,
    group: dist.ProcessGroup | None,
    sizes: Sequence[int] | None,
    candidates: int,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: Reduction = "mean",
) -> tuple[Tensor, Tensor]:
    """The loss, and the last output of `shared_classes.solve`, [3]."""
    logits = classes_last(local_logits, "local_logits", -1)
    check_options(ignore_index, label_smoothing, reduction)
    check_indices(logits, targets, "local_logits")
    group = _existing(group)
    sizes = _checked_sizes(sizes, group, logits.shape[-1])
    if type(candidates) is not int or candidates < 1:
        raise ValueError(f"candidates={candidates!r} is not allowed; it must be an integer, 1 or more")
    if weight is not None:
        check_weight(logits.new_empty(0, sum(sizes)), weight)
    q, r, temperature = _as_tensors(orders)

    indices = targets.flatten().long()
    counted = indices != ignore_index
    smoothed = _SmoothedTargets(indices, sum(sizes), weight, label_smoothing)
    learns = torch.is_grad_enabled() and any(order.requires_grad for order in (q, r, temperature))
    rows, *_, found = shared_classes.solve(
        logits.reshape(len(indices), logits.shape[-1]),
        *(indices, ignore_index),
        *(smoothed.own, smoothed.others, smoothed.weights if label_smoothing else None),
        *(q, r, temperature),
        *(sizes, group.group_name, candidates),
        *(learns, learns and q.requires_grad),
    )
    if label_smoothing:
        rows = rows - (temperature / q * smoothed.entropy(q, r)).to(rows.dtype)
    rows = rows - rows.detach().clamp_max(0)  # rounding can leave −1e-17 at p = y
    rows = torch.where(counted & (smoothed.share > 0), rows, 0) * smoothed.share.to(rows.dtype)
    shares = (counted * smoothed.of_target).to(rows.dtype)
    return reduced(rows.reshape(targets.shape), shares, reduction), found


class _SmoothedTargets:
    """For each row a distribution y, own · one-hot(target) + others · weights, and its share s of the loss.

    y is w∘((1 − ε) one-hot(target) + ε/classes)/s with class weights w and label smoothing ε, and s makes its sum 1.
    All are float64: `weights`, w, are [classes]; `of_target`, w of the target, `share`, s, `own` and `others`, [rows].
    """

    def __init__(self, indices: Tensor, classes: int, weight: Tensor | None, smoothing: float) -> None:
        ones = indices.new_ones(classes, dtype=torch.float64)
        self.weights = ones if weight is None else weight.detach().double()
        self.of_target = self.weights[indices.clamp(0, classes - 1)]
        most, least = 1 - smoothing, smoothing / classes
        self.share = most * self.of_target + least * self.weights.sum() if smoothing else self.of_target
        divisor = torch.where(self.share > 0, self.share, torch.inf)
        self.own, self.others = most * self.of_target / divisor, least / divisor

    def entropy(self, q: Tensor, r: Tensor) -> Tensor:
        """H_{q,r}(y), [rows].

        With v = w/Σw, the power sum of others · w is that of one class others · Σw, less R_q(v) in its logarithm.
        """
        tiny, total = torch.finfo(torch.float64).tiny, self.weights.sum()
        v, same = self.weights / total.clamp_min(tiny), self.others * self.of_target
        p = torch.stack([self.others * total, -same, self.own + same], -1)
        log_p = p.abs().clamp_min(tiny).log()
        log_p[:, 0] -= renyi_entropy(v, v.clamp_min(tiny).log(), q - 1)
        return sharma_mittal_of_renyi(renyi_entropy(p, log_p, q - 1), r).squeeze(-1)


def _existing(group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    group = dist.group.WORLD if group is None else group
    if group is None:
        raise RuntimeError("there is no process group; call torch.distributed.init_process_group first")
    return group


def _checked_sizes(sizes: Sequence[int] | None, group: dist.ProcessGroup, classes: int) -> list[int]:
    """`sizes` after a check; None stands for as many classes on each process as on this one."""
    sizes = [classes] * group.size() if sizes is None else list(sizes)
    if len(sizes) != group.size() or min(sizes) < 0 or not sum(sizes):
        raise ValueError(f"sizes={sizes} is not allowed; it must be {group.size()} numbers of classes, and not all 0")
    return sizes


def _as_tensors(orders: Orders) -> list[Tensor]:
    """The orders as tensors of no dimension."""
    caller = current_caller()
    named = zip(orders, ("q", "r", "temperature"), strict=True)
    values = (one_value(order, name) if isinstance(order, Tensor) else number(order, name) for order, name in named)
    return [as_tensor(value, caller) for value in values]


def vocab_parallel_linear_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    q: Order = 1.25,
    r: Order = 1.5,
    temperature: Order = 1.0,
    *,
    group: dist.ProcessGroup | None = None,
    sizes: Sequence[int] | None = None,
    candidates: int = 32,
    **options: Unpack[UnweightedLossOptions],
) -> Tensor:
    """The loss of the logits hidden · weightᵀ + bias, where each process holds the weights of its own classes.

    The value and gradients are the same as for `linear_fenchel_young_loss` of the whole layer. A process computes the
    logits of its classes a few rows at a time, with the communication of `vocab_parallel_loss` for each part of the
    rows, and never holds all of them. The gradient of `hidden` is summed over the processes by one all-reduce.

    Args:
        hidden: the input of the output layer, [..., features], floating point, the same on every process.
        weight, bias: this process's rows of the weights, [classes of this process, features], and its part of the bias,
            [classes of this process] or None; plain tensors, such as `to_local()` of a DTensor.
        targets: indices among all classes, [...], of an integer type, the same on every process.
        q, r, temperature, group, candidates: as for `vocab_parallel_loss`.
        sizes: the number of classes on each process. None: the processes exchange their numbers in one further message;
            under `torch.compile`, equal numbers.
        **options: as for `linear_fenchel_young_loss`.

    Returns, Raises: as `vocab_parallel_loss`; the loss is a scalar.

    Source: docs/math.md, section 5.

    Example:
        >>> import sharmix.parallel, torch.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> hidden, weight = torch.ones(4, 2), torch.zeros(1000, 2)
        >>> sharmix.parallel.vocab_parallel_linear_loss(hidden, weight, None, torch.zeros(4).long(), q=2.0, r=2.0)
        tensor(0.4995)
        >>> dist.destroy_process_group()
    """
    classes_last(hidden, "hidden", -1)
    group = _existing(group)
    if sizes is None and current_caller().is_plain:
        sizes = _sizes_of_all(weight, group)
    sizes = _checked_sizes(sizes, group, len(weight))
    # A tensor that stands for two orders gets a node of the graph for each, and so the gradients of both.
    q, r, temperature = one_value(q, "q"), one_value(r, "r"), one_value(temperature, "temperature")
    learned = [order for order in (q, r, temperature) if isinstance(order, Tensor)]
    loss = partial(
        vocab_parallel_loss, q=q, r=r, temperature=temperature, group=group, sizes=sizes, candidates=candidates
    )
    hidden = _SummedGradient.apply(hidden, group)
    return _linear_loss.linear_loss(
        loss, learned, hidden, weight, bias, targets, False, most_classes=max(sizes), **options
    )


def _sizes_of_all(weight: Tensor, group: dist.ProcessGroup) -> list[int]:
    own = torch.tensor([len(weight)], device=weight.device)
    sizes = own.new_empty(group.size())
    dist.all_gather_into_tensor(sizes, own, group=group)
    return sizes.tolist()


class _SummedGradient(torch.autograd.Function):
    """The same tensor on every process; its gradient is the sum over the processes."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return hidden.view_as(hidden)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        total = grad.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=ctx.group)
        return total, None


class VocabParallelLoss(FenchelYoungLoss):
    """The Fenchel–Young loss of an activation, of logits whose classes are split over a process group.

        L(z, y) = Ω*(z) − z·y + Ω(y),      with class weights w:  s L(z, w∘y/s),  s = Σ wᵢyᵢ

    All is as for `vocab_parallel_loss`. The module chooses the number of candidates itself, the same on every process:
    twice the largest support of the last batches, between 8 and 64. It keeps the number while it is compiled.

    Args:
        activation: `SharMiX`, `Entmax`, `Sparsemax` or `Normmax`, with fixed or learned orders, or such a name as
            `build_activation` accepts. Every process must give learned orders the same starts.
        weight, ignore_index, reduction, label_smoothing: as for `FenchelYoungLoss`; the weights are of all classes.
        group, sizes: as for `vocab_parallel_loss`; a DTensor brings its own.

    Shape:
        logits (*, C) with the C classes of this process, a plain tensor, or a DTensor of all classes, split over its
        last dimension alone, as of a layer under `ColwiseParallel(use_local_output=False)`; targets: indices (*) among
        all classes. The loss is a scalar, or has the shape of the targets.

    Raises:
        TypeError, ValueError, RuntimeError: as for `vocab_parallel_loss`; ValueError also for a DTensor of another
            placement, and for an activation or objective that is not allowed.

    Example:
        >>> import sharmix.parallel, torch.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> criterion = sharmix.parallel.VocabParallelLoss("sparsemax")
        >>> criterion(torch.tensor([[1.0, 0.5, -1.0]]), torch.tensor([0]))
        tensor(0.0625)
        >>> dist.destroy_process_group()
    """

    activation: SharmaMittal

    def __init__(
        self,
        activation: Activation | str,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        *,
        group: dist.ProcessGroup | None = None,
        sizes: Sequence[int] | None = None,
    ) -> None:
        super().__init__(activation, weight, ignore_index, reduction, label_smoothing)
        if not isinstance(self.activation, SharmaMittal):
            raise ValueError(f"{self.activation} is not of the Sharma–Mittal family; {shared_classes.FOR_SOFTMAX}")
        if self.activation.objective != "fenchel_young":
            raise ValueError(f"objective={self.activation.objective!r} of the activation is not allowed here")
        q, r, temperature = _as_tensors(self.activation.orders())
        if not (q.is_meta or r.is_meta or temperature.is_meta):
            shared_classes.allowed_orders(q, r, temperature, classes=2)
        self.group_name = group and group.group_name  # a group itself cannot be copied
        self.sizes, self.candidates = sizes, _MOST

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The loss of logits against targets, after `reduction`."""
        group = process_group(self.group_name) if self.group_name else None
        sizes = self.sizes
        if hasattr(logits, "placements"):  # a DTensor, whose module takes most of a second to import
            logits, group, sizes = _local_part(logits)
        options: dict[str, Any] = {name: getattr(self, name) for name in LossOptions.__annotations__}
        loss, found = _loss(logits, targets, self.activation.orders(), group, sizes, self.candidates, **options)
        if not torch.compiler.is_compiling():
            support, uncertified, _ = found.tolist()
            wanted = 2 * (self.candidates if uncertified else max(support, self.candidates // 4))
            self.candidates = min(_MOST, max(_FEWEST, 1 << (wanted - 1).bit_length()))
        return loss


def _local_part(logits: Any) -> tuple[Tensor, dist.ProcessGroup, list[int]]:
    """This process's part of a DTensor, its process group, and the number of classes on each process."""
    placements, mesh = logits.placements, logits.device_mesh
    if len(placements) != 1 or not placements[0].is_shard(logits.dim() - 1):
        raise ValueError(
            f"logits with placements {tuple(placements)} are not allowed; they must be split over their last dimension "
            "alone, (Shard(-1),), on a mesh of one dimension"
        )
    classes, processes = logits.shape[-1], mesh.size()
    most = -(-classes // processes)
    sizes = [max(0, min(most, classes - i * most)) for i in range(processes)]
    return logits.to_local(), mesh.get_group(), sizes
