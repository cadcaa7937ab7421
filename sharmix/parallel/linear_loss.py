"""The loss of an output layer whose classes are split over processes."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Unpack

import torch
import torch.distributed as dist
from torch import Tensor

from sharmix import _linear_loss
from sharmix._arguments import Order, classes_last, one_value
from sharmix._caller import current_caller
from sharmix._fenchel_young import LinearLossOptions
from sharmix.parallel.loss import checked_sizes, existing_group, vocab_parallel_loss


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
    **options: Unpack[LinearLossOptions],
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
        >>> targets = torch.zeros(4).long()
        >>> loss = sharmix.parallel.vocab_parallel_linear_loss
        >>> loss(hidden, weight, None, targets, q=2.0, r=2.0)
        tensor(0.4995)
        >>> dist.destroy_process_group()
    """
    classes_last(hidden, "hidden", -1)
    group = existing_group(group)
    if sizes is None and current_caller().is_plain:
        sizes = _sizes_of_all(weight, group)
    sizes = checked_sizes(sizes, group, len(weight))
    # A tensor that stands for two orders gets a node of the graph for each, and so the gradients of both.
    q, r, temperature = one_value(q, "q"), one_value(r, "r"), one_value(temperature, "temperature")
    learned = [order for order in (q, r, temperature) if isinstance(order, Tensor)]
    loss = partial(
        vocab_parallel_loss, q=q, r=r, temperature=temperature, group=group, sizes=sizes, candidates=candidates
    )
    hidden = _SummedGradient.apply(hidden, group)
    return _linear_loss.linear_loss(loss, learned, hidden, weight, bias, targets, most_classes=max(sizes), **options)


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
