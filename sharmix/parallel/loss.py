"""The loss of logits whose classes are split over processes."""

from collections.abc import Sequence
from typing import Unpack

import torch
import torch.distributed as dist
from torch import Tensor

from sharmix._arguments import Order, as_tensor, classes_last, number, one_value
from sharmix._fenchel_young import Reduction, UnweightedLossOptions, checked_options, reduced
from sharmix._mathematics.entropy import renyi_entropy, sharma_mittal_of_renyi
from sharmix._targets import check_indices
from sharmix.parallel._solution import solve
from sharmix.parallel._split import Split, Targets


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
    **options: Unpack[UnweightedLossOptions],
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
        **options: as for `fenchel_young_loss`, but for class weights.

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
    return loss_and_counts(local_logits, targets, (q, r, temperature), group, sizes, candidates, **options)[0]


def loss_and_counts(
    local_logits: Tensor,
    targets: Tensor,
    orders: tuple[Order, Order, Order],
    group: dist.ProcessGroup | None,
    sizes: Sequence[int] | None,
    candidates: int,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: Reduction = "mean",
) -> tuple[Tensor, Tensor]:
    """The loss, and the counts of `_solution.solve`, [3]."""
    logits = classes_last(local_logits, "local_logits", -1)
    ignore_index = checked_options(ignore_index, label_smoothing, reduction)
    check_indices(logits, targets, "local_logits")
    group = existing_group(group)
    sizes = checked_sizes(sizes, group, logits.shape[-1])
    if type(candidates) is not int or candidates < 1:
        raise ValueError(f"candidates={candidates!r} is not allowed; it must be an integer, 1 or more")
    q, r, temperature = as_tensors(orders)

    split = Split(sizes, group.group_name, candidates)
    flat = Targets(targets.flatten().long(), ignore_index, label_smoothing)
    logits = logits.reshape(len(flat.indices), logits.shape[-1])
    rows, counts = solve(logits, flat, (q, r, temperature), split)
    if label_smoothing:
        entropy = _entropy_of_smoothed(label_smoothing, split.classes, q, r, rows.device)
        rows = rows - (temperature / q * entropy).expand_as(rows).to(rows.dtype)  # sums of gradients stay float64
    rows = rows - rows.detach().clamp_max(0)  # rounding can leave −1e-17 at p = y
    rows = torch.where(flat.counted, rows, 0)
    return reduced(rows.reshape(targets.shape), flat.counted.to(rows.dtype), reduction), counts


def _entropy_of_smoothed(smoothing: float, classes: int, q: Tensor, r: Tensor, device: torch.device) -> Tensor:
    """H_{q,r} of (1 − ε) one-hot + ε/classes, [1]."""
    least = smoothing / classes
    of_class = torch.tensor([least, 1 - smoothing + least], dtype=torch.float64, device=device)
    p = of_class * torch.tensor([classes - 1, 1], dtype=torch.float64, device=device)  # all classes but one are equal
    return sharma_mittal_of_renyi(renyi_entropy(p, of_class.log(), q - 1), r)


def existing_group(group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    group = dist.group.WORLD if group is None else group
    if group is None:
        raise RuntimeError("there is no process group; call torch.distributed.init_process_group first")
    return group


def checked_sizes(sizes: Sequence[int] | None, group: dist.ProcessGroup, classes: int) -> list[int]:
    """`sizes` after a check; None stands for as many classes on each process as on this one."""
    sizes = [classes] * group.size() if sizes is None else list(sizes)
    if len(sizes) != group.size() or min(sizes) < 0 or not sum(sizes):
        raise ValueError(f"sizes={sizes} is not allowed; it must be {group.size()} numbers of classes, and not all 0")
    return sizes


def as_tensors(orders: tuple[Order, Order, Order]) -> list[Tensor]:
    """The orders as tensors of no dimension."""
    named = zip(orders, ("q", "r", "temperature"), strict=True)
    values = (one_value(order, name) if isinstance(order, Tensor) else number(order, name) for order, name in named)
    return [value if isinstance(value, Tensor) else as_tensor(value) for value in values]
