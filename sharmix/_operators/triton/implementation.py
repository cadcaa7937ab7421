"""The functions of `backend.Implementation` on CUDA: which kernels are launched, by shape and dtype alone.

- Rows of up to 2,048 classes: `rows`, in registers.
- Few rows of more than 32,768 classes: `together`.
- Other rows: `lanes`, which leaves dense rows to `rows`, in registers or block by block.
- float64, and orders that are rough, for which float32 is not enough: `rows_in_float64`. Whether orders on the device
  are rough, only the device knows: there both kinds are launched, and each does its own rows.

The host reads no value of a tensor, so it never waits for the device.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from sharmix._arguments import may_read
from sharmix._operators import any_device
from sharmix._operators.orders import Orders, Slopes, is_concave
from sharmix._operators.triton import equation, lanes, loss_parts, rows, rows_in_float64, together
from sharmix._operators.triton import map_backward as backward
from sharmix._operators.triton.launch import launch
from sharmix._operators.triton.outputs import Labels, LossOutputs, MapOutputs
from sharmix._targets import checked_classes

_SHORT = 2048  # classes, which fit in registers without spills beside those of other rows
_WHOLE = 32768  # classes, the most that a program's registers hold
_SPAN = 16384  # classes of a program, of several for a row
_LANES = 2048
_MOST_BITS = 7  # of a key for its block: 128 blocks of lanes
_ROOM = 512  # places of a row's support; a longer one is read block by block
_BLOCK = 4096  # classes of a longer row that are read at a time
_BACKWARD_BLOCK = 8192  # the same in the map's backward pass, whose program shall have a multiprocessor for itself:
# two rows for each do not fit in the L2 cache of a GPU
_WIDE_BLOCK = 1024  # the same in float64
_SUMMED = 16384  # rows that are counted or summed at a time
_SCALED = 4096  # gradients that a program multiplies


class _Kernels(NamedTuple):
    """The kernels of a map, or of a loss, one for each way to solve rows."""

    rows: Any
    lanes: Any
    together: Any
    in_float64: Any


_MAP = _Kernels(
    rows.map_of_rows,
    lanes.map_of_lanes,
    together.map_of_rows_together,
    rows_in_float64.map_of_rows_in_float64,
)
_LOSS = _Kernels(
    rows.loss_of_rows,
    lanes.loss_of_lanes,
    together.loss_of_rows_together,
    rows_in_float64.loss_of_rows_in_float64,
)


def solve(logits: Tensor, orders: Orders, wants_conjugate: bool, keeps: bool) -> tuple[Tensor, Any, Sequence[Tensor]]:
    logits = _readable(logits)
    count, _ = _shape(logits)
    p = torch.empty_like(logits)
    conjugate = _wide(logits, *logits.shape[:-1]) if wants_conjugate else None
    kept = [logits.new_empty(count, dtype=torch.int32)] if keeps else []
    if keeps and _way(logits, orders) == "lanes":
        kept += logits.new_empty((count, _ROOM), dtype=torch.int32), logits.new_empty(count, dtype=torch.int32)
    _launch(_MAP, logits, (MapOutputs(p, conjugate, *kept, *[None] * (3 - len(kept))),), orders)
    return p, conjugate, kept


def map_backward(
    probabilities: Tensor, grad: Tensor, orders: Orders, slopes: str, kept: Sequence[Tensor] = ()
) -> tuple[Tensor, Slopes]:
    p, grad = _readable(probabilities), _readable(grad)
    by_logits = torch.empty_like(p)
    of_rows = _wide(p, *p.shape[:-1], 3) if slopes != "none" else None
    given = backward.Given(p, grad, *kept, *[None] * (3 - len(kept)))
    count, classes = _shape(p)
    block = min(triton.next_power_of_2(classes), _BACKWARD_BLOCK if of_rows is None else _SHORT)
    options = {"num_warps": _warps(block, 4 if block <= _SHORT else 8)}
    with torch.cuda.device_of(p):
        for constants in _passes(p, orders):
            arguments = given, by_logits, of_rows, orders_of(orders, p, constants["TYPE"]), classes
            constants = {"BETA": beta_of(orders[0]), "BLOCK": block, "ROOM": _ROOM, **constants}
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
    count, block = losses.numel(), min(triton.next_power_of_2(losses.numel()), _SUMMED)
    options = {"num_warps": _warps(block, 16)}
    with torch.cuda.device_of(logits):
        counts = _wide(logits, 2) if reduction == "mean" else None
        if counts is not None:
            launch(loss_parts.count_rows, (1,), (targets, counts, count, ignore_index), options, BLOCK=block)
        divisor = None if counts is None else counts[1:]
        labels = Labels(targets, ignore_index, divisor if keeps == "gradient" else None)
        _launch(_LOSS, logits, (labels, LossOutputs(losses, gradient, states, of_rows)), orders)
        if reduction == "none":
            return losses, states, None, of_rows, 1.0
        sums = _wide(logits, 4)
        summed = of_rows if slopes == "sums" else None
        launch(loss_parts.sum_rows, (1,), (losses, summed, counts, sums, count), options, BLOCK=block)
    found = sums[1:] if slopes == "sums" else of_rows
    return sums[0], states, gradient, found, 1.0 if divisor is None else divisor


def scaled(gradient: Tensor, factor: Tensor) -> Tensor:
    """gradient · factor, in place. The host does not know whether the factor is 1, where there is nothing to do."""
    with torch.cuda.device_of(gradient):
        grid = (triton.cdiv(gradient.numel(), _SCALED),)
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
    count, classes = _shape(logits)
    labels = Labels(targets, ignore_index, divisor if isinstance(divisor, Tensor) else None)
    block = min(triton.next_power_of_2(classes), _WIDE_BLOCK)
    with torch.cuda.device_of(logits):
        for constants in _passes(logits, orders):
            own = orders_of(orders, logits, constants["TYPE"])
            arguments = logits, labels, states, grad, by_logits, own, classes, int(grad.dim() > 0)
            grid = count, triton.cdiv(classes, block)
            constants = {"BETA": beta_of(orders[0]), "BLOCK": block, **constants}
            launch(loss_parts.loss_backward, grid, arguments, {"num_warps": _warps(block, 4)}, **constants)
    return by_logits


def _launch(kernels: _Kernels, logits: Tensor, given: Sequence[Any], orders: Orders) -> None:
    """Solve all rows; `given` are the kernels' arguments between the logits and the orders."""
    count, classes = _shape(logits)
    beta, way = beta_of(orders[0]), _way(logits, orders)
    with torch.cuda.device_of(logits):
        before = logits, *given, orders_of(orders, logits)
        if way == "rows":
            _launch_rows(kernels, before, None, count, classes, beta)
        elif way == "together":
            programs = triton.next_power_of_2(triton.cdiv(classes, _SPAN))
            numbers = logits.new_zeros((count, together.NUMBERS_OF_PROGRAM, programs), dtype=torch.float32)
            options = {"num_warps": 32, "launch_cooperative_grid": True}
            constants = {"BETA": beta, "BLOCK": _SPAN, "PROGRAMS": programs}
            launch(kernels.together, (count * programs,), (*before, numbers, classes), options, **constants)
        elif way == "lanes":
            left = logits.new_empty(count, dtype=torch.int32)
            low = (1 << max(5, (triton.cdiv(classes, _LANES) - 1).bit_length())) - 1
            constants = {"BETA": beta, "BLOCK": _LANES, "LOW": low, **({"ROOM": _ROOM} if kernels is _MAP else {})}
            launch(kernels.lanes, (count,), (*before, left, classes), {"num_warps": 8, "maxnreg": 80}, **constants)
            _launch_rows(kernels, before, left, count, classes, beta)
        if (in_float64 := _in_float64(logits, orders)) != "none":
            arguments = logits, *given, orders_of(orders, logits, tl.float64), count, classes
            block = min(triton.next_power_of_2(classes), _WIDE_BLOCK)
            options, constants = {"num_warps": _warps(block, 4)}, {"BLOCK": block, "ROUGH": in_float64 == "rough"}
            launch(kernels.in_float64, (count,), arguments, options, **constants)


def _launch_rows(
    kernels: _Kernels, before: Sequence[Any], left: Tensor | None, count: int, classes: int, beta: int
) -> None:
    """Solve all rows, or those that `lanes` left, which as many programs do as the device has multiprocessors."""
    if classes <= _WHOLE:
        block = triton.next_power_of_2(classes)
        warps = _warps(block, 4 if block <= _SHORT else 16)
    else:
        block, warps = _BLOCK, _warps(_BLOCK, 8)
    programs = count if left is None else min(count, max(1, _multiprocessors(left.device)))
    constants = {"BETA": beta, "BLOCK": block, "WHOLE": classes <= _WHOLE}
    launch(kernels.rows, (programs,), (*before, left, count, classes), {"num_warps": warps}, **constants)


def _way(logits: Tensor, orders: Orders) -> str:
    """How smooth rows are solved: `rows`, `lanes` or `together`; `none` where float64 solves all rows."""
    count, classes = _shape(logits)
    if _in_float64(logits, orders) == "all":
        return "none"
    if classes <= _SHORT:
        return "rows"
    if classes > _WHOLE:
        programs = triton.next_power_of_2(triton.cdiv(classes, _SPAN))
        if count * programs <= _multiprocessors(logits.device):
            return "together"
    return "lanes" if classes <= _LANES << _MOST_BITS else "rows"


def _in_float64(logits: Tensor, orders: Orders) -> str:
    """Which rows need float64: `all`, `none`, or those that the device finds to be `rough`."""
    q, r, _ = orders
    if logits.dtype == torch.float64:
        return "all"
    if isinstance(q, Tensor) or isinstance(r, Tensor):
        return "rough"
    return "none" if q <= 2 and r <= equation.MOST_SMOOTH_R and is_concave(q, r) else "all"


def _passes(values: Tensor, orders: Orders) -> list[dict[str, Any]]:
    """The constants of each launch of a kernel that is the same in float32 and in float64."""
    rows = _in_float64(values, orders)
    passes = [] if rows == "all" else [{"TYPE": tl.float32, "ROUGH": False}]
    return passes if rows == "none" else [*passes, {"TYPE": tl.float64, "ROUGH": rows == "rough"}]


def orders_of(orders: Orders, values: Tensor, dtype: tl.dtype = tl.float32) -> equation.Orders:
    """The orders for kernels. In float64 numbers are tensors, too, since Triton passes a number as float32."""
    if not any(isinstance(order, Tensor) for order in orders) and dtype == tl.float32:
        return equation.Orders(*orders, None, None, None, 0)
    if dtype == tl.float64:
        orders = tuple(
            order if isinstance(order, Tensor) else values.new_full((1,), order, dtype=torch.float64)
            for order in orders
        )
    count = _shape(values)[0]
    of_rows = any(isinstance(order, Tensor) and order.numel() > 1 for order in orders)
    at = [
        None if not isinstance(order, Tensor) else order.reshape(-1).expand(count).contiguous() if of_rows else order
        for order in orders
    ]
    return equation.Orders(*[0.0 if isinstance(order, Tensor) else order for order in orders], *at, int(of_rows))


def beta_of(q: float | Tensor) -> int:
    """1/(q − 1) if it is known to be 1, 2, 3 or 4; else 0."""
    inverse = 0.0 if isinstance(q, Tensor) or q <= 1 else 1 / (q - 1)
    return round(inverse) if 0.5 < inverse < 4.5 and abs(inverse - round(inverse)) < 1e-9 else 0


@functools.cache
def _multiprocessors(device: torch.device) -> int:
    """Of the device; 0 for the CPU, where Triton's interpreter runs one program after the other."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 0


def _warps(block: int, of_thread: int) -> int:
    """The warps of a program whose threads hold so many of a block's classes, or more."""
    return max(1, min(32, block // (32 * of_thread)))


def _shape(values: Tensor) -> tuple[int, int]:
    return values.numel() // values.shape[-1], values.shape[-1]


def _wide(values: Tensor, *shape: int) -> Tensor:
    """Memory in the dtype of losses and slopes, which is at least float32."""
    return values.new_empty(shape, dtype=torch.promote_types(values.dtype, torch.float32))


def _readable(tensor: Tensor) -> Tensor:
    """The tensor as one whose memory holds its values."""
    return tensor if tensor.is_contiguous() and not tensor.is_neg() else tensor.contiguous().resolve_neg()
