"""Which code answers: a kernel made for the device, or plain torch."""

import importlib.util
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch

from sharmix import _cpu

Backend = Literal["c++", "triton", "torch"]

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
    kind = torch.device(device).type
    if _plain_torch:
        return "torch"
    if kind == "cpu" and _cpu.is_present():
        return "c++"
    return "triton" if kind == "cuda" and importlib.util.find_spec("triton") else "torch"


@contextmanager
def plain_torch() -> Iterator[None]:
    """Within this context plain torch answers on every device, as where there is no kernel."""
    global _plain_torch
    before, _plain_torch = _plain_torch, True
    try:
        yield
    finally:
        _plain_torch = before


def kernel(device: torch.device) -> Any:
    """The module whose functions answer for a device, or None for plain torch."""
    name = backend(device)
    if name == "torch":
        _tell(device)
        return None
    return _cpu if name == "c++" else importlib.import_module("sharmix._triton")


def _tell(device: torch.device) -> None:
    """Warn, once, that plain torch answers on the CPU for want of a kernel."""
    global _told
    if device.type == "cpu" and not _plain_torch and not _told:
        _told = True
        warnings.warn(
            "sharmix was installed without a C++ compiler: plain torch answers on the CPU, with the same results, "
            "several times slower. Install it again where there is one (gcc or clang, and Python's headers).",
            RuntimeWarning,
            stacklevel=2,
        )
