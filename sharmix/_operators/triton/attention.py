"""SharMiX attention on CUDA: one launch forward, two backward. The host reads no value, and no score is stored.

Blocks of queries and keys, and what a kernel is compiled for, follow from shapes, dtypes and orders that are numbers.
"""

import functools
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from sharmix._operators.orders import Orders
from sharmix._operators.triton import equation, solving
from sharmix._operators.triton.attention_backward import Above, keys_backward, queries_backward
from sharmix._operators.triton.attention_forward import Inputs, Kept, Kind, Lists, attention_forward
from sharmix._operators.triton.launch import launch

_PROGRAMS = 2  # of the forward pass on a multiprocessor at the same time
_AT_ONCE = 32  # queries of `keys_backward`: 64 spill registers
_SHARED = {2: 100, 4: 168}  # KiB of memory that a program shares, by the bytes of a number
MOST_HEAD = 128  # the size of a head


class Blocks(NamedTuple):
    """Queries and keys of a block, and warps and stages of a program."""

    rows: int
    columns: int
    warps: int
    stages: int


class Solution(NamedTuple):
    """The output, and what the backward pass needs."""

    inputs: Inputs
    output: Tensor
    kept: Kept | None
    lists: Lists
    kind: Kind


def forward(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, orders: Orders, scale: float, is_causal: bool, keeps: bool
) -> Solution:
    """activation(scale · Q Kᵀ) V, and if `keeps` is True what `backward` needs.

    Args:
        query, key, value: contiguous [batch, heads, rows, head], [batch, heads/group, columns, head] and alike.
        mask: bool [batch, columns], True for the keys that take part; None: all.
        orders: numbers, or tensors of one value or of one for each head.
        scale: above 0.
    """
    (batch, heads, rows, head), (_, others, columns, value_head) = query.shape, value.shape
    exact, device = query.dtype == torch.float32, query.device
    blocks = _blocks_of(query, value)
    width, value_width = _width(head), _width(value_head)
    precision = "tf32x3" if exact else "tf32"
    beta = solving.beta_of(orders[0])
    kind = Kind(beta, is_causal, exact, precision, head, value_head, width, value_width, blocks.rows, blocks.columns)
    down, across = triton.cdiv(rows, blocks.rows), triton.cdiv(columns, blocks.columns)
    tiles = batch * heads * down
    programs = min(tiles, max(1, _PROGRAMS * solving.multiprocessors(device)))
    output, kept = value.new_empty(batch, heads, rows, value_head), None
    if keeps:
        kept = Kept(torch.empty_like(output), _float32(query, 5, batch * heads, rows))
    lists = Lists(
        torch.empty((tiles if keeps else programs, across), dtype=torch.int16, device=device),
        torch.empty((tiles, 2), dtype=torch.int32, device=device) if keeps else None,
        torch.empty((tiles, across), dtype=torch.int8, device=device) if keeps else None,
    )
    bytes_of_mask = None if mask is None else mask.contiguous().view(torch.uint8)
    inputs = Inputs(query, key, value, bytes_of_mask, scale, heads, heads // others, rows, columns)
    tops = _float32(query, programs, across, blocks.rows)
    warps = blocks.warps if exact or has_wgmma(device) else 8  # four spill registers on an A100
    arguments = inputs, _orders(orders), output, kept, lists, tops, tiles
    constants = {"KIND": kind, "TOLERANCE": _tolerance(kind, keeps)}
    with torch.cuda.device_of(query):
        launch(attention_forward, (programs,), arguments, _options(blocks, warps), **constants)
    return Solution(inputs, output, kept, lists, kind)


def backward(
    solution: Solution, orders: Orders, grad: Tensor, wants_keys: bool, wants_orders: bool
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """The gradients by query, key and value, and by q, r and T₀ of each head, [3, heads]."""
    inputs, output, kept, lists, kind = solution
    query, key, value = inputs[:3]
    (batch, heads, rows, _), others = query.shape, key.shape[1]
    down, across = triton.cdiv(rows, kind.rows), triton.cdiv(inputs.columns, kind.columns)
    by_query, numbers = torch.empty_like(query), _float32(query, 7, batch * heads, rows)
    by_orders = _float32(query, 3, batch, heads, rows) if wants_orders else None
    by_key = by_value = None
    blocks, grad = _blocks_of(query, value), grad.contiguous()
    options = _options(blocks, blocks.warps)
    with torch.cuda.device_of(query):
        arguments: tuple[Any, ...] = inputs, _orders(orders), Above(output, grad), kept, lists, by_query, numbers
        arguments = *arguments, by_orders, batch * heads
        launch(queries_backward, (batch * heads * down,), arguments, options, KIND=kind)
        if wants_keys:
            by_key, by_value = torch.empty_like(key), torch.empty_like(value)
            columns = torch.empty((batch * heads, across, down), dtype=torch.int16, device=query.device)
            arguments = inputs, _orders(orders), grad, lists, columns, by_key, by_value, numbers, batch * heads
            constants = {"KIND": kind, "AT_ONCE": min(_AT_ONCE, kind.rows)}
            launch(keys_backward, (batch * others * across,), arguments, options, **constants)
    return by_query, by_key, by_value, None if by_orders is None else by_orders.sum((1, 3))


def fits(query: Tensor, value: Tensor) -> bool:
    """Whether the kernels take these dtypes and sizes of heads, and have room on the device."""
    dtypes = torch.float32, torch.bfloat16, torch.float16
    if query.dtype not in dtypes or not 0 < max(query.shape[-1], value.shape[-1]) <= MOST_HEAD:
        return False
    return not query.is_cuda or _shared_memory(query.device) >= _SHARED[query.element_size()] << 10


def _blocks_of(query: Tensor, value: Tensor) -> Blocks:
    is_wide = max(query.shape[-1], value.shape[-1]) > 64
    return Blocks(64, 32, 8, 1) if query.dtype == torch.float32 and is_wide else Blocks(64, 64, 4, 2)


def _tolerance(kind: Kind, keeps: bool) -> float:
    """The last step but one of y: with `keeps` the output is corrected for the step after it, else not."""
    if kind.is_exact:
        return 1e-5 if kind.beta in (1, 2) else 1e-4
    return 5e-3 if kind.beta == 1 or not keeps else 3e-2


def _orders(orders: Orders) -> equation.Orders:
    """For kernels: numbers, or one value for all heads or for each."""
    numbers = [0.0 if isinstance(order, Tensor) else order for order in orders]
    heads = max(order.numel() if isinstance(order, Tensor) else 1 for order in orders)
    at = [order.reshape(-1).expand(heads).contiguous() if isinstance(order, Tensor) else None for order in orders]
    return equation.Orders(*numbers, *at, int(heads > 1))


def _options(blocks: Blocks, warps: int) -> dict[str, int]:
    return {"num_warps": warps, "num_stages": blocks.stages}


def _width(size: int) -> int:
    return max(16, triton.next_power_of_2(size))


def _float32(like: Tensor, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device=like.device)


@functools.cache
def has_wgmma(device: torch.device) -> bool:
    """Whether the device multiplies as an H100 does, where products hold fewer registers."""
    return device.type != "cuda" or torch.cuda.get_device_capability(device)[0] >= 9


@functools.cache
def _shared_memory(device: torch.device) -> int:
    """Bytes that a program can have."""
    return triton.runtime.driver.active.utils.get_device_properties(device.index)["max_shared_mem"]
