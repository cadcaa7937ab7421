"""Which implementation computes: a kernel made for the device, or plain torch."""

import importlib
import importlib.util
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, Protocol

import torch
from torch import Tensor

from sharmix._operators import cpu, plain
from sharmix._operators.orders import LossOrders, Orders

Backend = Literal["c++", "triton", "torch"]


class Implementation(Protocol):
    """What each of them has; logits are [..., classes], and losses and slopes come in float32 at least."""

    def solve(self, logits: Tensor, orders: Orders, wants_conjugate: bool) -> tuple[Tensor, Tensor]:
        """p* and its conjugate [...] of logits measured from their row's largest, or anything if it is not wanted."""

    def map_backward(
        self, probabilities: Tensor, grad: Tensor, orders: Orders, wants_orders: bool
    ) -> tuple[Tensor, Tensor]:
        """(∂p/∂z) grad, and (∂p/∂θ)·grad by q, r and T₀ [..., 3], or [0] if it is not wanted."""

    def class_loss(
        self, logits: Tensor, targets: Tensor, orders: LossOrders, ignore_index: int, reduction: str, wants_slopes: bool
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Against targets [...], 0 where they are `ignore_index`: the reduced loss, four numbers of each row's solution
        for the backward pass [..., 4], or [0] for α-ReLU, each row's slopes by q, r and T₀ [..., 3], or [0] if not
        wanted, and what the sum was divided by."""

    def class_loss_backward(
        self, logits: Tensor, targets: Tensor, states: Tensor, grad: Tensor, orders: LossOrders, ignore_index: int
    ) -> Tensor:
        """grad (p − y), for grad [...] or one for all rows."""


class Kernel(Implementation, Protocol):
    """One made for a kind of device."""

    def takes(self, logits: Tensor, orders: LossOrders) -> bool:
        """Whether it computes logits of this dtype with these orders, faster than plain torch."""


class _Block:
    """One `with plain_torch()`. It ends wherever it was seen: in tasks that were started in it, and when a generator
    that is suspended in it is closed by another thread."""

    has_ended = False


plain_torch_blocks: ContextVar[tuple[_Block, ...]] = ContextVar("plain_torch_blocks", default=())
_warned = False


def backend(device: str | torch.device = "cpu") -> Backend:
    """The implementation in use for tensors on a device.

    Args:
        device: a torch device, such as `cpu` or `cuda`.

    Returns:
        `c++`, the compiled CPU kernel; `triton`, the CUDA kernels, where torch finds a CUDA device; or `torch`, plain
        torch operations: the same results, slower.

    Example:
        >>> with sharmix.plain_torch():
        ...     sharmix.backend("cpu")
        'torch'
    """
    kind = torch.device(device).type
    if is_plain_torch():
        return "torch"
    if kind == "cpu":
        return "c++" if cpu.kernel else "torch"
    has_triton = kind == "cuda" and torch.cuda.is_available() and importlib.util.find_spec("triton")
    return "triton" if has_triton else "torch"


@contextmanager
def plain_torch() -> Iterator[None]:
    """Within this block plain torch computes on every device, as where there is no kernel.

    It holds in the thread or asyncio task that entered the block, and in tasks started from within, until the block
    ends; other threads are not affected. The backward pass computes as the forward pass did, wherever it runs. In
    a compiled function (`torch.compile`, `torch.export`) the choice is that of each call, not of the compilation.

    Example:
        >>> with sharmix.plain_torch():
        ...     sharmix.sparsemax(torch.tensor([1.0, 0.5, -1.0]))
        tensor([0.7500, 0.2500, 0.0000])
    """
    block = _Block()
    plain_torch_blocks.set((*plain_torch_blocks.get(), block))
    try:
        yield
    finally:
        block.has_ended = True
        plain_torch_blocks.set(tuple(other for other in plain_torch_blocks.get() if not other.has_ended))


def is_plain_torch() -> bool:
    """Whether the caller is inside `plain_torch`; never while a function is compiled, whose operators choose later."""
    if torch.compiler.is_compiling():
        return False
    blocks = plain_torch_blocks.get()
    return bool(blocks) and not all(block.has_ended for block in blocks)


@contextmanager
def chosen(plain: bool) -> Iterator[None]:
    """Within it `is_plain_torch` is what it was in the forward pass of what is now differentiated."""
    if plain == is_plain_torch():
        yield
        return
    token = plain_torch_blocks.set((_Block(),) if plain else ())
    try:
        yield
    finally:
        plain_torch_blocks.reset(token)


def select(logits: Tensor, orders: LossOrders) -> Implementation:
    """The implementation for these logits."""
    name = backend(logits.device)
    if name == "c++":
        return cpu if logits.numel() and cpu.takes(logits, orders) else plain
    if name == "torch":
        _warn_once(logits.device)
    elif logits.numel():
        for kernel in cuda_kernels():
            if kernel.takes(logits, orders):
                return kernel
    return plain


def cuda_kernels() -> tuple[Kernel, ...]:
    """The one to be asked first before the other; they import Triton."""
    return tuple(importlib.import_module(f"sharmix._operators.{module}") for module in ("cuda_long_rows", "cuda"))


def _warn_once(device: torch.device) -> None:
    """Warn, once, that plain torch computes on the CPU for want of a kernel."""
    global _warned
    if device.type == "cpu" and not is_plain_torch() and not _warned:
        _warned = True
        warnings.warn(
            "sharmix has no compiled kernel that loads here, as when it is installed without a C++ compiler: plain "
            "torch computes on the CPU, with the same results, several times slower. Install it again where there is "
            "a compiler (gcc or clang) and Python's headers; python -m sharmix says what is missing.",
            RuntimeWarning,
            stacklevel=2,
        )
