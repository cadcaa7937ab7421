"""The compiled CPU kernel: which of its builds is loaded, and its functions on tensors."""

import ctypes
import importlib
import sys
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from sharmix._arguments import label_error
from sharmix._orders import Orders, largest

_TORCH = "torch_cpu.dll" if sys.platform == "win32" else torch._C.__file__  # elsewhere it finds what it links to
_BUILDS = {"AVX512": ("avx512", "avx2"), "AVX2": ("avx2",)}  # by what torch says of the processor; then any other


def _load() -> ModuleType | None:
    """The build for this processor, or None if there is none: there was no compiler at installation."""
    for name in (*_BUILDS.get(torch.backends.cpu.get_cpu_capability(), ()), "baseline"):
        try:
            kernel = importlib.import_module(f"sharmix._kernel_{name}")
            parallel_for = ctypes.CDLL(_TORCH).torch_parallel_for
        except (ImportError, OSError, AttributeError):
            continue
        kernel.use_threads(ctypes.cast(parallel_for, ctypes.c_void_p).value)
        return kernel
    return None


_kernel: Any = _load()


node: Any = None  # a graph node in C++; the build has none


def is_present() -> bool:
    """Whether there is a build that this processor runs."""
    return _kernel is not None


def takes(logits: Tensor, orders: Orders) -> bool:
    """For q > 2 a class joins the support with infinite slope, and the root must be measured from there (`_knots`)."""
    return logits.dtype in (torch.float32, torch.float64) and largest(orders[0]) <= 2


def solve(logits: Tensor, orders: Orders) -> tuple[Tensor, Tensor]:
    """See `_backend.Code`."""
    logits = logits.contiguous()
    probabilities, conjugate = torch.empty_like(logits), torch.empty(logits.shape[:-1], dtype=logits.dtype)
    _kernel.solve(
        *_matrix(logits), *_columns(orders), logits.data_ptr(), probabilities.data_ptr(), conjugate.data_ptr()
    )
    return probabilities, conjugate


def map_backward(probabilities: Tensor, grad: Tensor, orders: Orders, wants_parameters: bool) -> tuple[Tensor, Tensor]:
    """See `_backend.Code`."""
    probabilities, grad = probabilities.contiguous(), _materialised(grad)
    grad_logits = torch.empty_like(probabilities)
    shape = (*probabilities.shape[:-1], 3 if wants_parameters else 0)
    grad_parameters = torch.empty(shape, dtype=probabilities.dtype)
    _kernel.map_backward(
        *_matrix(probabilities),
        *_columns(orders),
        probabilities.data_ptr(),
        grad.data_ptr(),
        grad_logits.data_ptr(),
        grad_parameters.data_ptr(),  # 0 where it is empty
    )
    return grad_logits, grad_parameters


def class_loss(
    logits: Tensor, targets: Tensor, orders: Orders, ignore_index: int, wants_slopes: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """See `_backend.Code`."""
    logits, targets = logits.contiguous(), targets.contiguous()
    loss = torch.empty(targets.shape, dtype=logits.dtype)
    states = torch.empty((*targets.shape, 4), dtype=torch.float64)
    slopes = torch.empty((*targets.shape, 3 if wants_slopes else 0), dtype=logits.dtype)
    outside = _kernel.first_outside(targets.data_ptr(), ignore_index, targets.numel(), logits.shape[-1])
    if outside >= 0:
        raise label_error(int(targets.flatten()[outside]), logits.shape[-1], ignore_index)
    _kernel.class_loss(
        *_matrix(logits),
        *_columns(orders),
        ignore_index,
        logits.data_ptr(),
        targets.data_ptr(),
        loss.data_ptr(),
        states.data_ptr(),
        slopes.data_ptr(),
    )
    return loss, states, slopes


def class_loss_backward(
    logits: Tensor, targets: Tensor, states: Tensor, grad: Tensor, orders: Orders, ignore_index: int
) -> Tensor:
    """See `_backend.Code`."""
    logits, targets, grad = logits.contiguous(), targets.contiguous(), _materialised(grad)
    grad_logits = torch.empty_like(logits)
    _kernel.class_loss_backward(
        *_matrix(logits),
        *_column(orders[0]),
        ignore_index,
        logits.data_ptr(),
        targets.data_ptr(),
        states.data_ptr(),
        grad.data_ptr(),
        int(grad.dim() > 0),
        grad_logits.data_ptr(),
    )
    return grad_logits


def _materialised(grad: Tensor) -> Tensor:
    """In memory as it reads: autograd hands over gradients that are zero, or negated, by a flag alone."""
    return torch.zeros(grad.shape, dtype=grad.dtype) if grad._is_zerotensor() else grad.resolve_neg().contiguous()


def _matrix(rows: Tensor) -> tuple[int, int, int]:
    """Bytes a number, rows and classes."""
    classes = rows.shape[-1]
    return rows.element_size(), rows.numel() // classes, classes


def _columns(orders: Orders) -> tuple[int | float, ...]:
    q, r, temperature = orders
    return (*_column(q), *_column(r), *_column(temperature))


def _column(order: float | Tensor) -> tuple[int, float]:
    """The address of a value for each row, or 0 and the value for all."""
    return (order.data_ptr(), 0.0) if isinstance(order, Tensor) else (0, order)
