"""SharMiX attention on CUDA: one launch forward, two backward. The host reads no value, and no score is stored.

Blocks of queries and keys, and what a kernel is compiled for, follow from shapes, dtypes and orders that are numbers.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sharmix._operators.orders import Orders
from sharmix._operators.triton import equation, solving
from sharmix._operators.triton.attention_backward import Above, keys_backward, queries_backward
from sharmix._operators.triton.attention_forward import Inputs, Kept, Kind, Lists, attention_forward
from sharmix._operators.triton.launch import ceiling, launch, power_of_two

_PROGRAMS = 2  # of the forward pass on a multiprocessor at the same time
_AT_ONCE = 32  # queries of `keys_backward`: 64 spill registers
_SHARED = {2: 96, 4: 160}  # KiB of memory that a program shares, by the bytes of a number
_MOST_BLOCKS = 2**15 - 1  # of queries or keys, whose numbers are int16
MOST_HEAD = 128  # the size of a head


class Blocks(NamedTuple):
    """Queries and keys of a block, and warps and stages of a program."""

    rows: int
    columns: int
    warps: int
    stages: int


class Problem(NamedTuple):
    """activation(scale · Q Kᵀ) V for query [batch, heads, rows, head], and key and value, which may have fewer heads.

    All are contiguous. `mask` is bool [batch, keys], True for the keys that take part; None: all. Orders are numbers,
    or tensors of one value or of one for each head. `scale` is above 0.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    orders: Orders
    scale: float
    is_causal: bool


def forward(problem: Problem, keeps: bool) -> tuple[Tensor, Sequence[Tensor]]:
    """The output, and if `keeps` is True the tensors that `backward` needs."""
    inputs, kind, blocks = _prepared(problem)
    query, value = problem.query, problem.value
    batch, heads, rows, _ = query.shape
    down, across = ceiling(rows, kind.rows), ceiling(inputs.columns, kind.columns)
    tiles, device = batch * heads * down, query.device
    programs = min(tiles, max(1, _PROGRAMS * solving.multiprocessors(device)))
    output = value.new_empty(batch, heads, rows, kind.value_head)
    kept, lists = None, Lists(_memory(query, torch.int16, programs, across), None, None)
    if keeps:
        kept = Kept(torch.empty_like(output), _memory(query, torch.float32, 5, batch * heads, rows))
        dtypes_and_lengths = (torch.int16, across), (torch.int32, 2), (torch.int8, across)
        lists = Lists(*(_memory(query, dtype, tiles, length) for dtype, length in dtypes_and_lengths))
    tops = _memory(query, torch.float32, programs, across, kind.rows)
    warps = blocks.warps if kind.is_exact or has_wgmma(device) else 8  # four would spill registers
    arguments = inputs, _orders(problem.orders), output, kept, lists, tops, tiles
    options, constants = _options(blocks, warps), {"KIND": kind, "TOLERANCE": _tolerance(kind, keeps)}
    with torch.cuda.device_of(query):
        launch(attention_forward, (programs,), arguments, options, **constants)
    return output, () if kept is None else (*kept, *lists)


def backward(
    problem: Problem, output: Tensor, saved: Sequence[Tensor], grad: Tensor, wants_keys: bool, wants_orders: bool
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """The gradients by query, key and value, and by q, r and T₀ of each head, [3, heads]."""
    inputs, kind, blocks = _prepared(problem)
    kept, lists, query = Kept(*saved[:2]), Lists(*saved[2:]), problem.query
    (batch, heads, rows, _), others = query.shape, problem.key.shape[1]
    down, across = ceiling(rows, kind.rows), ceiling(inputs.columns, kind.columns)
    by_query, numbers = torch.empty_like(query), _memory(query, torch.float32, 7, batch * heads, rows)
    by_orders = _memory(query, torch.float32, 3, batch, heads, rows) if wants_orders else None
    by_key = by_value = None
    orders, grad, options = _orders(problem.orders), grad.contiguous(), _options(blocks, blocks.warps)
    arguments: tuple[Any, ...] = inputs, orders, Above(output, grad), kept, lists, by_query, numbers, by_orders
    with torch.cuda.device_of(query):
        grid = (batch * heads * down,)
        launch(queries_backward, grid, (*arguments, batch * heads), options, KIND=kind)
        if wants_keys:
            by_key, by_value = torch.empty_like(problem.key), torch.empty_like(problem.value)
            columns = _memory(query, torch.int16, batch * heads, across, down)
            arguments = inputs, orders, grad, lists, columns, by_key, by_value, numbers, batch * heads
            constants = {"KIND": kind, "AT_ONCE": min(_AT_ONCE, kind.rows)}
            launch(keys_backward, (batch * others * across,), arguments, options, **constants)
    return by_query, by_key, by_value, None if by_orders is None else by_orders.sum((1, 3))


def fits(query: Tensor, value: Tensor) -> bool:
    """Whether the kernels take these dtypes, sizes of heads and numbers of blocks, and have room on the device."""
    dtypes = torch.float32, torch.bfloat16, torch.float16
    if query.dtype not in dtypes or not 0 < max(query.shape[-1], value.shape[-1]) <= MOST_HEAD:
        return False
    blocks = _blocks_of(query, value)
    if max(ceiling(query.shape[-2], blocks.rows), ceiling(value.shape[-2], blocks.columns)) > _MOST_BLOCKS:
        return False
    return not query.is_cuda or _shared_memory(query.device) >= _SHARED[query.element_size()] << 10


def _blocks_of(query: Tensor, value: Tensor) -> Blocks:
    is_wide = max(query.shape[-1], value.shape[-1]) > 64
    return Blocks(64, 32, 8, 1) if query.dtype == torch.float32 and is_wide else Blocks(64, 64, 4, 2)


def _prepared(problem: Problem) -> tuple[Inputs, Kind, Blocks]:
    """What the kernels read and are compiled for."""
    query, key, value, mask, orders, scale, is_causal = problem
    (_, heads, rows, head), (_, others, columns, value_head) = query.shape, value.shape
    blocks, is_exact = _blocks_of(query, value), query.dtype == torch.float32
    seen = None if mask is None else mask.contiguous().view(torch.uint8)
    inputs = Inputs(query, key, value, seen, scale, heads, heads // others, rows, columns)
    widths = [max(16, power_of_two(size)) for size in (head, value_head)]
    sizes = head, value_head, *widths, blocks.rows, blocks.columns
    precision = "tf32x3" if is_exact else "tf32"
    kind = Kind(solving.beta_of(orders[0]), is_causal, mask is not None, is_exact, precision, *sizes)
    return inputs, kind, blocks


def _tolerance(kind: Kind, keeps: bool) -> float:
    """The last step but one of y: with `keeps` the output is corrected for the step after it, else not."""
    if kind.is_exact:
        return 1e-5 if kind.beta in (1, 2) else 1e-4
    return 5e-3 if kind.beta == 1 or not keeps else 3e-2


def _orders(orders: Orders) -> equation.Orders:
    """For kernels: numbers, or one value for all heads or for each."""
    q, r, temperature = (0.0 if isinstance(order, Tensor) else order for order in orders)
    heads = max(order.numel() if isinstance(order, Tensor) else 1 for order in orders)
    at = [order.reshape(-1).expand(heads).contiguous() if isinstance(order, Tensor) else None for order in orders]
    return equation.Orders(q, r, temperature, at[0], at[1], at[2], int(heads > 1))


def _options(blocks: Blocks, warps: int) -> dict[str, int]:
    return {"num_warps": warps, "num_stages": blocks.stages}


def _memory(like: Tensor, dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=like.device)


@functools.cache
def has_wgmma(device: torch.device) -> bool:
    """Whether the device multiplies as an H100 does, where products hold fewer registers."""
    return device.type != "cuda" or torch.cuda.get_device_capability(device)[0] in (9, 10)


@functools.cache
def _shared_memory(device: torch.device) -> int:
    """Bytes that a program can have."""
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin
