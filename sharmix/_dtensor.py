"""Maps and losses of a DTensor: each process computes its own rows, by the same functions of plain tensors.

A DTensor is known by its attribute: importing `torch.distributed.tensor` takes most of a second.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from sharmix._arguments import Order, per_row
from sharmix._fenchel_young import Reduction, checked_options, class_shares, reduced
from sharmix._targets import check_targets


def is_dtensor(values: object) -> bool:
    return type(values) is not Tensor and hasattr(values, "placements")


def map_of_rows(compute: Callable[..., Tensor], logits: Any, orders: Sequence[Order], *others: Any) -> Tensor:
    """compute(logits, orders, *others) for logits [..., classes]; q, r and T₀ are [..., 1], [], or numbers."""
    rows, named = _Rows(logits), dict(zip(("q", "r", "temperature"), orders, strict=True))
    return rows.whole(compute(rows.own(logits), rows.own_orders(named), *others), logits.shape)


def loss_of_rows(
    compute: Callable[..., Tensor],
    logits: Any,
    targets: Any,
    orders: dict[str, Order],
    weight: Any = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    **options: Any,
) -> Tensor:
    """compute(logits, targets, **orders, …) for logits [..., classes]; the mean is over the rows of all processes."""
    ignore_index = checked_options(ignore_index, 0.0, reduction)
    check_targets(logits, targets)
    rows, given = _Rows(logits), {name: per_row(logits, -1, order, name) for name, order in orders.items()}
    if weight is not None:
        weight = rows.copied(weight, "weight")
    y = rows.own(targets, "targets")
    own = dict(zip(given, rows.own_orders(given), strict=True))
    losses = compute(rows.own(logits), y, **own, weight=weight, ignore_index=ignore_index, reduction="none", **options)
    shares = None
    if not targets.is_floating_point():
        counted = y != ignore_index
        indices = torch.where(counted, y, 0).long()
        shares = rows.whole(class_shares(indices, counted, weight, losses.dtype), logits.shape[:-1])
    return reduced(rows.whole(losses, logits.shape[:-1]), shares, reduction)


class _Rows:
    """Which rows of logits [..., classes] a process computes; it has all classes of a row, as for torch's softmax."""

    def __init__(self, logits: Any) -> None:
        from torch.distributed.tensor import DTensor, Partial, Replicate

        self.whole_tensor, self.mesh = DTensor, logits.device_mesh
        last = logits.dim() - 1
        self.splits = [one.is_shard() and not one.is_shard(last) for one in logits.placements]
        self.placements = [
            one if split else Replicate() for one, split in zip(logits.placements, self.splits, strict=True)
        ]
        self.copies = [Replicate()] * len(self.splits)
        self.sums = [Partial() if split else Replicate() for split in self.splits]

    def own(self, values: Any, name: str = "logits") -> Tensor:
        """This process's part of values [...] or [..., classes]."""
        return _distributed(values, name).redistribute(placements=self.placements).to_local()

    def copied(self, values: Any, name: str) -> Tensor:
        """Values that every process has as a whole; their gradient is the sum over the processes."""
        values = _distributed(values, name).redistribute(placements=self.copies)
        return values.to_local(grad_placements=self.sums)

    def own_orders(self, orders: dict[str, Order]) -> list[Order]:
        """This process's part of each order that has one value for each row; every other order whole."""
        return [
            (self.own if order.dim() else self.copied)(order, name) if isinstance(order, Tensor) else order
            for name, order in orders.items()
        ]

    def whole(self, values: Tensor, shape: torch.Size) -> Tensor:
        """The DTensor of a shape from each process's part."""
        stride = torch.empty(shape, device="meta").stride()
        return self.whole_tensor.from_local(values, self.mesh, self.placements, shape=shape, stride=stride)


def _distributed(values: Any, name: str) -> Any:
    if not is_dtensor(values):
        raise TypeError(
            f"{name} must be a DTensor beside logits that are one, got {type(values).__name__}; convert a tensor with "
            "distribute_tensor(…, mesh, [Replicate()]), and a module with distribute_module(…, mesh)"
        )
    return values
