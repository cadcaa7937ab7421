"""Which code answers: a kernel made for the device, or plain torch."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Literal

import torch

from sharmix import _kernel

Backend = Literal["c++", "torch"]

_loaded = _kernel.load()
_plain_torch = False
_told = False


def backend(device: str | torch.device = "cpu") -> Backend:
    """The code that answers for tensors on a device.

    Args:
        device: a torch device, such as `cpu` or `cuda`.

    Returns:
        `c++`, the compiled CPU kernel, or `torch`, plain torch operations: the same results, slower.
    """
    return "torch" if kernel(torch.device(device)) is None else "c++"


@contextmanager
def plain_torch() -> Iterator[None]:
    """Within this context plain torch answers on every device, as where there is no kernel."""
    global _plain_torch
    before, _plain_torch = _plain_torch, True
    try:
        yield
    finally:
        _plain_torch = before


def kernel(device: torch.device) -> ModuleType | None:
    """The compiled kernel for a device, or None."""
    return _loaded if device.type == "cpu" and not _plain_torch else None


def notice() -> None:
    """Warn, once, that plain torch answers on the CPU for want of a kernel."""
    global _told
    if _loaded is None and not _plain_torch and not _told:
        _told = True
        warnings.warn(
            "sharmix was installed without a C++ compiler: plain torch answers on the CPU, with the same results, "
            "several times slower. Install it again where there is one (gcc or clang, and Python's headers).",
            RuntimeWarning,
            stacklevel=2,
        )
