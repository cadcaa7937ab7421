"""Which code answers: a kernel made for the device, or plain torch."""

import importlib.util
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from sharmix import _cpu, _torch
from sharmix._orders import Orders

Backend = Literal["c++", "triton", "torch"]


class Code(Protocol):
    """What each of them has; logits are [..., classes], and losses and slopes come in float32 at least."""

    def takes(self, logits: Tensor, orders: Orders) -> bool:
        """Whether it answers for logits of this dtype with these orders."""

    def solve(self, logits: Tensor, orders: Orders) -> tuple[Tensor, Tensor]:
        """p* and its conjugate [...] of logits measured from their row's largest."""

    def map_backward(
        self, probabilities: Tensor, grad: Tensor, orders: Orders, wants_parameters: bool
    ) -> tuple[Tensor, Tensor]:
        """(∂p/∂z) grad, and (∂p/∂θ)·grad by q, r and T₀ [..., 3], or [..., 0] if it is not wanted."""

    def class_loss(
        self, logits: Tensor, targets: Tensor, orders: Orders, ignore_index: int, wants_slopes: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Against targets [...], 0 where they are `ignore_index`: the loss [...], four numbers of each row's solution
        for the backward pass [..., 4], and the loss' slopes by q, r and T₀ [..., 3], or [..., 0] if not wanted."""

    def class_loss_backward(
        self, logits: Tensor, targets: Tensor, states: Tensor, grad: Tensor, orders: Orders, ignore_index: int
    ) -> Tensor:
        """grad (p − y), for grad [...] or one for all rows."""


_plain_torch = False
_told = False


def backend(device: str | torch.device = "cpu") -> Backend:
    """The code that answers for tensors on a device.

    Args:
        device: a torch device, such as `cpu` or `cuda`.

    Returns:
        `c++`, the compiled CPU kernel; `triton`, the CUDA kernels; or `torch`, plain torch operations: the same
        results, slower.
    """
    kind = device.type if isinstance(device, torch.device) else torch.device(device).type
    if _plain_torch:
        return "torch"
    if kind == "cpu" and _cpu.is_present():
        return "c++"
    return "triton" if kind == "cuda" and importlib.util.find_spec("triton") else "torch"


def node() -> Any:
    """Map and loss as nodes of the autograd graph in C++: functions that answer, or return None to what is unusual."""
    return _cpu.node if backend() == "c++" and not torch.compiler.is_compiling() else None


@contextmanager
def plain_torch() -> Iterator[None]:
    """Within this context plain torch answers on every device, as where there is no kernel."""
    global _plain_torch
    before, _plain_torch = _plain_torch, True
    try:
        yield
    finally:
        _plain_torch = before


def answering(logits: Tensor, orders: Orders) -> Code:
    """The code that answers for these logits."""
    name = backend(logits.device)
    if name == "torch":
        _tell(logits.device)
        return _torch
    if logits.numel():
        for kernel in _kernels(name):
            if kernel.takes(logits, orders):
                return kernel
    return _torch


def _kernels(name: Backend) -> tuple[Code, ...]:
    """The kernels for a device, the one to be asked first before the others."""
    if name == "c++":
        return (_cpu,)
    return tuple(importlib.import_module(f"sharmix.{module}") for module in ("_triton_long_rows", "_triton"))


def _tell(device: torch.device) -> None:
    """Warn, once, that plain torch answers on the CPU for want of a kernel."""
    global _told
    if device.type == "cpu" and not _plain_torch and not _told:
        _told = True
        warnings.warn(
            "sharmix has no compiled kernel that loads here, as when it is installed without a C++ compiler: plain "
            "torch answers on the CPU, with the same results, several times slower. Install it again where there is "
            "a compiler (gcc or clang) and Python's headers.",
            RuntimeWarning,
            stacklevel=2,
        )
