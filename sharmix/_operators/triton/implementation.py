"""The functions of `backend.Implementation` on CUDA. The host reads no value of a tensor, so it never waits."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sharmix._arguments import may_read
from sharmix._operators import any_device
from sharmix._operators.orders import Orders, Slopes
from sharmix._operators.triton import loss_parts, solving
from sharmix._operators.triton import map_backward as backward
from sharmix._operators.triton.launch import ceiling, launch, power_of_two
from sharmix._operators.triton.outputs import Labels, LossOutputs, MapOutputs
from sharmix._targets import checked_classes

_BACKWARD_BLOCK = 8192  # classes at a time in the map's backward pass, whose program shall have a multiprocessor for
# itself: two rows for each do not fit in the L2 cache of a GPU
_WIDTH = 1024  # classes of a program in the loss's backward pass
_SUMMED = 16384  # rows that are counted or summed at a time
_SCALED = 4096  # gradients that a program multiplies


def solve(logits: Tensor, orders: Orders, wants_conjugate: bool, keeps: bool) -> tuple[Tensor, Any, Sequence[Tensor]]:
    logits = _readable(logits)
    count, _ = solving.shape_of(logits)
    p = torch.empty_like(logits)
    conjugate = _wide(logits, *logits.shape[:-1]) if wants_conjugate else None
    kept = [logits.new_empty(count, dtype=torch.int32)] if keeps else []
    if keeps and solving.way_of(logits, orders) == "lanes":
        kept += logits.new_empty((count, solving.ROOM), dtype=torch.int32), logits.new_empty(count, dtype=torch.int32)
    solving.solve_rows(solving.MAP, logits, (MapOutputs(p, conjugate, *kept, *[None] * (3 - len(kept))),), orders)
    return p, conjugate, kept


def map_backward(
    probabilities: Tensor, grad: Tensor, orders: Orders, slopes: str, kept: Sequence[Tensor] = ()
) -> tuple[Tensor, Slopes]:
    p, grad = _readable(probabilities), _readable(grad)
    by_logits = torch.empty_like(p)
    of_rows = _wide(p, *p.shape[:-1], 3) if slopes != "none" else None
    given = backward.Given(p, grad, *kept, *[None] * (3 - len(kept)))
    count, classes = solving.shape_of(p)
    block = min(power_of_two(classes), _BACKWARD_BLOCK if of_rows is None else solving.SHORT)
    options = {"num_warps": solving.warps_of(block, 4 if block <= solving.SHORT else 8)}
    with torch.cuda.device_of(p):
        for constants in solving.passes(p, orders):
            arguments = given, by_logits, of_rows, solving.orders_for_kernels(orders, p, constants["TYPE"]), classes
            constants = {"BETA": solving.beta_of(orders[0]), "BLOCK": block, "ROOM": solving.ROOM, **constants}
            launch(backward.map_backward, (count,), arguments, options, **constants)
    return by_logits, None if of_rows is None else any_device.of_kind(of_rows, slopes)


def keeps_gradient(logits: Tensor) -> bool:
    """Whether the mean or sum of a loss keeps its gradient, already divided: float16 would round that to 0."""
    return logits.dtype != torch.float16


def class_loss(
    logits: Tensor, targets: Tensor, orders: Orders, ignore_index: int, reduction: str, slopes: str, keeps: str
) -> tuple[Tensor, Tensor | None, Tensor | None, Slopes, float | Tensor]:
    logits, targets = _readable(logits), _readable(targets)
    if may_read(logits):
        checked_classes(targets, logits.shape[-1], ignore_index)
    losses = _wide(logits, *logits.shape[:-1])
    gradient = torch.empty_like(logits) if keeps == "gradient" else None
    states = logits.new_empty((*losses.shape, 4), dtype=torch.float64) if keeps == "states" else None
    of_rows = _wide(logits, *losses.shape, 3) if slopes != "none" else None
    count, block = losses.numel(), min(power_of_two(losses.numel()), _SUMMED)
    options = {"num_warps": solving.warps_of(block, 16)}
    with torch.cuda.device_of(logits):
        counted = divisor = None
        if reduction == "mean":
            counted, divisor = _wide(logits), _wide(logits)
            arguments = targets, counted, divisor, count, ignore_index
            launch(loss_parts.count_rows, (1,), arguments, options, BLOCK=block)
        labels = Labels(targets, ignore_index, divisor if keeps == "gradient" else None)
        solving.solve_rows(solving.LOSS, logits, (labels, LossOutputs(losses, gradient, states, of_rows)), orders)
        if reduction == "none":
            return losses, states, None, of_rows, 1.0
        loss, sums = _wide(logits), _wide(logits, 3)
        summed = of_rows if slopes == "sums" else None
        launch(loss_parts.sum_rows, (1,), (losses, summed, counted, divisor, loss, sums, count), options, BLOCK=block)
    found = sums if slopes == "sums" else of_rows
    return loss, states, gradient, found, 1.0 if divisor is None else divisor


def scaled(gradient: Tensor, factor: Tensor) -> Tensor:
    """gradient · factor, in place. The host does not know whether the factor is 1, where there is nothing to do."""
    with torch.cuda.device_of(gradient):
        grid = (ceiling(gradient.numel(), _SCALED),)
        arguments = gradient, factor, gradient.numel()
        launch(loss_parts.scale_unless_one, grid, arguments, {"num_warps": 4}, BLOCK=_SCALED)
    return gradient


def class_loss_backward(
    logits: Tensor,
    targets: Tensor,
    states: Tensor,
    grad: Tensor,
    orders: Orders,
    ignore_index: int,
    divisor: float | Tensor,
) -> Tensor:
    logits, targets, states, grad = (_readable(one) for one in (logits, targets, states, grad))
    by_logits = torch.empty_like(logits)
    count, classes = solving.shape_of(logits)
    by_rows = grad.to(torch.promote_types(logits.dtype, torch.float32)), int(grad.numel() > 1)
    labels = Labels(targets, ignore_index, divisor if isinstance(divisor, Tensor) else None, *by_rows)
    block = min(power_of_two(classes), _WIDTH)
    if solving.rows_in_need_of_float64(logits, orders) != "all":
        with torch.cuda.device_of(logits):
            arguments = logits, labels, states, by_logits, solving.orders_for_kernels(orders, logits), classes
            options = {"num_warps": solving.warps_of(block, 4)}
            constants = {"BETA": solving.beta_of(orders[0]), "BLOCK": block}
            launch(loss_parts.loss_backward, (count, ceiling(classes, block)), arguments, options, **constants)
    out = LossOutputs(_wide(logits, count), by_logits, None, None)  # a state of four numbers does not hold a steep p
    solving.solve_in_float64(solving.LOSS, logits, (labels, out), orders)
    return by_logits


def _wide(values: Tensor, *shape: int) -> Tensor:
    """Memory in the dtype of losses and slopes, which is at least float32."""
    return values.new_empty(shape, dtype=torch.promote_types(values.dtype, torch.float32))


def _readable(tensor: Tensor) -> Tensor:
    """The tensor as one whose memory holds its values."""
    return tensor if tensor.is_contiguous() and not tensor.is_neg() else tensor.contiguous().resolve_neg()
