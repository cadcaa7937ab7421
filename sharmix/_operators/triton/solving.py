"""How the rows of a map or loss are solved on CUDA: which kernels are launched, by shape and dtype alone.

- Rows of up to 2,048 classes: `rows`, in registers.
- Few rows of more than 32,768 classes: `together`.
- Other rows: `lanes`, which leaves dense rows to `rows`, in registers or block by block.
- float64, and orders that are rough, for which float32 is not enough: `rows_in_float64`. Whether orders on the device
  are rough, only the device knows: there both kinds are launched, and each does its own rows.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from sharmix._operators.orders import Orders, is_concave
from sharmix._operators.triton import equation, lanes, rows, rows_in_float64, together
from sharmix._operators.triton.launch import ceiling, launch, power_of_two

SHORT = 2048  # classes of a row that fit in registers beside other rows
_WHOLE = 32768  # classes, the most that a program's registers hold
_SPAN = 16384  # classes of a program, of several for a row
_LANES = 2048
_MOST_BITS = 7  # of a key for its block: 128 blocks of lanes
OPTIONS_OF_LANES = {"num_warps": 8, "maxnreg": 80}  # so that three programs share a multiprocessor
ROOM = 512  # places of a row's support; a longer one is read block by block
_BLOCK = 4096  # classes of a longer row that are read at a time
_WIDE_BLOCK = 1024  # the same in float64


class Kernels(NamedTuple):
    """The kernels of a map, or of a loss, one for each way to solve rows."""

    rows: Any
    lanes: Any
    together: Any
    in_float64: Any


MAP = Kernels(
    rows.map_of_rows,
    lanes.map_of_lanes,
    together.map_of_rows_together,
    rows_in_float64.map_of_rows_in_float64,
)
LOSS = Kernels(
    rows.loss_of_rows,
    lanes.loss_of_lanes,
    together.loss_of_rows_together,
    rows_in_float64.loss_of_rows_in_float64,
)


def solve_rows(kernels: Kernels, logits: Tensor, given: Sequence[Any], orders: Orders) -> None:
    """Solve all rows; `given` are the kernels' arguments between the logits and the orders."""
    count, classes = shape_of(logits)
    way, before = way_of(logits, orders), (logits, *given, orders_for_kernels(orders, logits))
    left, constants = None, {"BETA": beta_of(orders[0])}
    with torch.cuda.device_of(logits):
        if way == "together":
            programs = power_of_two(ceiling(classes, _SPAN))
            numbers = logits.new_zeros((count, together.NUMBERS_OF_PROGRAM, programs), dtype=torch.float32)
            options = {"num_warps": 32, "launch_cooperative_grid": True}
            constants |= {"BLOCK": _SPAN, "PROGRAMS": programs}
            launch(kernels.together, (count * programs,), (*before, numbers, classes), options, **constants)
        if way == "lanes":
            left = logits.new_empty(count, dtype=torch.int32)
            constants |= constants_of_lanes(classes) | ({"ROOM": ROOM} if kernels is MAP else {})
            launch(kernels.lanes, (count,), (*before, left, classes), OPTIONS_OF_LANES, **constants)
        if way in ("rows", "lanes"):
            _solve_in_rows(kernels, logits, given, orders, left)
    solve_in_float64(kernels, logits, given, orders)


def solve_rows_in_one_program(
    kernels: Kernels, logits: Tensor, given: Sequence[Any], orders: Orders, left: Tensor | None
) -> None:
    """Solve the rows that kernels like those of `lanes` left, or where that is None all rows, in one program each."""
    if rows_in_need_of_float64(logits, orders) != "all":
        with torch.cuda.device_of(logits):
            _solve_in_rows(kernels, logits, given, orders, left)
    solve_in_float64(kernels, logits, given, orders)


def _solve_in_rows(kernels: Kernels, logits: Tensor, given: Sequence[Any], orders: Orders, left: Tensor | None) -> None:
    count, classes = shape_of(logits)
    if classes <= _WHOLE:
        block = power_of_two(classes)
        warps = warps_of(block, 4 if block <= SHORT else 16)
    else:
        block, warps = _BLOCK, warps_of(_BLOCK, 8)
    programs = count if left is None else min(count, programs_of(logits, warps))
    arguments = logits, *given, orders_for_kernels(orders, logits), left, count, classes
    constants = {"BETA": beta_of(orders[0]), "BLOCK": block, "WHOLE": classes <= _WHOLE}
    launch(kernels.rows, (programs,), arguments, {"num_warps": warps}, **constants)


def solve_in_float64(kernels: Kernels, logits: Tensor, given: Sequence[Any], orders: Orders) -> None:
    """Solve the rows that need float64."""
    (count, classes), needed = shape_of(logits), rows_in_need_of_float64(logits, orders)
    if needed != "none":
        arguments = logits, *given, orders_for_kernels(orders, logits, tl.float64), count, classes
        block = min(power_of_two(classes), _WIDE_BLOCK)
        options, constants = {"num_warps": warps_of(block, 4)}, {"BLOCK": block, "ROUGH": needed == "rough"}
        with torch.cuda.device_of(logits):
            launch(kernels.in_float64, (count,), arguments, options, **constants)


def constants_of_lanes(classes: int) -> dict[str, int]:
    """The lanes of a program, and the bits of a key that tell the blocks of a row apart."""
    return {"BLOCK": _LANES, "LOW": (1 << max(5, (ceiling(classes, _LANES) - 1).bit_length())) - 1}


def way_of(logits: Tensor, orders: Orders) -> str:
    """How smooth rows are solved: `rows`, `lanes` or `together`; `none` where float64 solves all rows."""
    count, classes = shape_of(logits)
    if rows_in_need_of_float64(logits, orders) == "all":
        return "none"
    if classes <= SHORT:
        return "rows"
    if classes > _WHOLE:
        programs = power_of_two(ceiling(classes, _SPAN))
        if count * programs <= multiprocessors(logits.device):
            return "together"
    return "lanes" if classes <= _LANES << _MOST_BITS else "rows"


def rows_in_need_of_float64(logits: Tensor, orders: Orders) -> str:
    """Which rows need float64: `all`, `none`, or those that the device finds to be `rough`."""
    q, r, _ = orders
    if logits.dtype == torch.float64:
        return "all"
    if isinstance(q, Tensor) or isinstance(r, Tensor):
        return "rough"
    return "none" if q <= 2 and r <= equation.MOST_SMOOTH_R and is_concave(q, r) else "all"


def passes(values: Tensor, orders: Orders) -> list[dict[str, Any]]:
    """The constants of each launch of a kernel that is the same in float32 and in float64."""
    rows = rows_in_need_of_float64(values, orders)
    passes = [] if rows == "all" else [{"TYPE": tl.float32, "ROUGH": False}]
    return passes if rows == "none" else [*passes, {"TYPE": tl.float64, "ROUGH": rows == "rough"}]


def orders_for_kernels(orders: Orders, values: Tensor, dtype: tl.dtype = tl.float32) -> equation.Orders:
    """The orders for kernels. In float64 numbers are tensors, too, since Triton passes a number as float32."""
    at: list[Tensor | None] = [order if isinstance(order, Tensor) else None for order in orders]
    numbers = [0.0 if isinstance(order, Tensor) else order for order in orders]
    if dtype == tl.float64:
        at = [
            values.new_full((1,), number, dtype=torch.float64) if order is None else order
            for number, order in zip(numbers, at, strict=True)
        ]
    step = int(any(order is not None and order.numel() > 1 for order in at))
    if step:
        count, _ = shape_of(values)
        at = [None if order is None else order.reshape(-1).expand(count).contiguous() for order in at]
    (q, r, temperature), (q_at, r_at, temperature_at) = numbers, at
    return equation.Orders(q, r, temperature, q_at, r_at, temperature_at, step)


def beta_of(q: float | Tensor) -> int:
    """1/(q − 1) if it is known to be 1, 2, 3 or 4; else 0."""
    inverse = 0.0 if isinstance(q, Tensor) or q <= 1 else 1 / (q - 1)
    return round(inverse) if 0.5 < inverse < 4.5 and abs(inverse - round(inverse)) < 1e-9 else 0


@functools.cache
def multiprocessors(device: torch.device) -> int:
    """Of the device; 0 for the CPU, where Triton's interpreter runs one program after the other."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 0


def programs_of(values: Tensor, warps: int) -> int:
    """How many programs of so many warps run at the same time."""
    return max(1, multiprocessors(values.device) * (32 // warps))


def warps_of(block: int, of_thread: int) -> int:
    """The warps of a program whose threads hold so many of a block's classes, or more."""
    return max(1, min(32, block // (32 * of_thread)))


def shape_of(values: Tensor) -> tuple[int, int]:
    return values.numel() // values.shape[-1], values.shape[-1]
