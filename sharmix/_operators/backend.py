"""The choice of the implementation: a kernel made for the device, or plain torch."""

import functools
import importlib
import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, Protocol, cast

import torch
from torch import Tensor

from sharmix._operators import any_device, cpu
from sharmix._operators.orders import Orders, Slopes
from sharmix._warn import warn

Backend = Literal["c++", "triton", "torch"]


class Implementation(Protocol):
    """The functions of an implementation. Logits are [..., classes]; losses and slopes are float32 or wider."""

    def solve(
        self, logits: Tensor, orders: Orders, wants_conjugate: bool, keeps: bool
    ) -> tuple[Tensor, Any, Sequence[Tensor]]:
        """p*, if it is wanted the conjugate [...] of logits minus the largest of their row, and tensors to keep.

        If `keeps` is True, `map_backward` will be called, for which these tensors save time.
        """

    def map_backward(
        self, probabilities: Tensor, grad: Tensor, orders: Orders, slopes: str, kept: Sequence[Tensor] = ()
    ) -> tuple[Tensor, Slopes]:
        """(∂p/∂z) grad, and (∂p/∂θ)·grad for θ = q, r and T₀: of each row, [..., 3], as three sums, or None.

        `slopes` is `rows`, `sums` or `none`.
        """

    def keeps_gradient(self, logits: Tensor) -> bool:
        """Whether the mean or sum of a loss of these logits shall keep its gradient for the backward pass."""

    def scaled(self, gradient: Tensor, factor: Tensor) -> Tensor:
        """A kept gradient times a number, [], in place."""

    def class_loss(
        self,
        logits: Tensor,
        targets: Tensor,
        orders: Orders,
        ignore_index: int,
        reduction: str,
        slopes: str,
        keeps: str,
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Slopes, float | Tensor]:
        """The reduced loss against class indices [...]; rows whose target is `ignore_index` have the loss 0.

        Returns the loss, states, gradient, slopes and divisor. The states are four numbers of each row's solution,
        [..., 4], for `class_loss_backward`. If `keeps` is `gradient`, there may be the gradient of the mean or sum by
        the logits in their place. If it is `nothing`, neither is needed. The slopes are those of each row's loss by q,
        r and T₀, or of the mean or sum, as for `map_backward`. The divisor of the sum is at least 1.
        """

    def class_loss_backward(
        self,
        logits: Tensor,
        targets: Tensor,
        states: Tensor,
        grad: Tensor,
        orders: Orders,
        ignore_index: int,
        divisor: float | Tensor,
    ) -> Tensor:
        """grad (p − y)/divisor, for one grad for each row, [...], or one grad for all rows."""


in_plain_torch = ContextVar("in_plain_torch", default=False)
_warned = False


def backend(device: str | torch.device = "cpu") -> Backend:
    """The implementation in use for tensors on a device.

    It is `c++` for the compiled CPU kernel; `triton` for the CUDA kernels, if torch finds an NVIDIA GPU and the package
    `triton` is installed; or `torch` for plain torch operations, which give the same results but are slower. On a Mac's
    GPU (`mps`), which has no float64, they solve in float32 (see the page on installation).

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
    has_triton = kind == "cuda" and torch.cuda.is_available() and not torch.version.hip
    has_triton = has_triton and bool(importlib.util.find_spec("triton"))
    return "triton" if has_triton else "torch"


@contextmanager
def plain_torch() -> Iterator[None]:
    """A context manager: within its block sharmix uses plain torch operations on every device, and no kernel.

    The block applies to the thread or asyncio task that entered it, and to tasks started within it. A backward pass
    uses the implementation of its forward pass. With compiled functions put the whole step, forward and backward,
    inside the block, and call them from there: outside of it their loss at class indices has the gradient NaN.

    Example:
        >>> with sharmix.plain_torch():
        ...     sharmix.sparsemax(torch.tensor([1.0, 0.5, -1.0]))
        tensor([0.7500, 0.2500, 0.0000])
    """
    with use_plain_torch(True):
        yield


def is_plain_torch() -> bool:
    """Whether the caller is inside `plain_torch`; False during compilation, since compiled operators choose later."""
    return not torch.compiler.is_compiling() and in_plain_torch.get()


@contextmanager
def use_plain_torch(plain: bool) -> Iterator[None]:
    """Make `is_plain_torch` return `plain` within the block."""
    if plain == is_plain_torch():
        yield
        return
    in_plain_torch.set(plain)
    try:
        yield
    finally:
        in_plain_torch.set(not plain)


def select_implementation(logits: Tensor, orders: Orders) -> Implementation:
    if logits.is_cpu and cpu.kernel and not in_plain_torch.get():
        return cpu if logits.numel() and cpu.supports(logits, orders) else any_device
    name = backend(logits.device)
    if name == "torch":
        _warn_once(logits.device)
    elif logits.numel():
        return _triton()
    return any_device


@functools.cache
def _triton() -> Implementation:
    """The implementation on CUDA, whose modules import Triton."""
    return cast(Implementation, importlib.import_module("sharmix._operators.triton.implementation"))


def _warn_once(device: torch.device) -> None:
    """Warn once if plain torch is used on the CPU because there is no kernel."""
    global _warned
    if device.type == "cpu" and not is_plain_torch() and not _warned:
        _warned = True
        message = "sharmix has no compiled kernel that loads here: plain torch computes, several times slower"
        warn(f"{message}. python -m sharmix says what is missing.", RuntimeWarning)
