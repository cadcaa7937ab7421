"""The compiled CPU kernel: which of its builds is loaded, and its functions on tensors."""

import importlib
import math
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from sharmix._arguments import label_error
from sharmix._operators.orders import Orders, largest
from sharmix._private_torch import kernel_doors

DTYPES = (torch.float32, torch.float64)
BUILDS = {"AVX512": ("avx512", "avx2"), "AVX2": ("avx2",)}  # by what torch says of the processor; then any other


def _load() -> ModuleType | None:
    """The build for this processor, or None if there is none: there was no compiler at installation."""
    doors = kernel_doors()
    for name in (*BUILDS.get(torch.backends.cpu.get_cpu_capability(), ()), "baseline"):
        try:
            kernel = importlib.import_module(f"sharmix._kernel_{name}")
        except ImportError:
            continue
        if doors is not None:
            kernel.use_torch(*doors)
            return kernel
    return None


kernel: Any = _load()


def is_present() -> bool:
    """Whether there is a build that this processor runs."""
    return kernel is not None


def takes(logits: Tensor, orders: Orders) -> bool:
    """For q > 2 a class joins the support with infinite slope, and the root must be measured from there (`knots`)."""
    return logits.dtype in DTYPES and largest(orders[0]) <= 2


def solve(logits: Tensor, orders: Orders, wants_conjugate: bool) -> tuple[Tensor, Tensor]:
    """See `backend.Implementation`."""
    found = kernel.solve(logits, *orders, wants_conjugate)
    return found if wants_conjugate else (found, logits.new_empty(0))


def map_backward(probabilities: Tensor, grad: Tensor, orders: Orders, wants_orders: bool) -> tuple[Tensor, Tensor]:
    """See `backend.Implementation`."""
    grad_logits, along = kernel.map_backward(probabilities, grad.to(probabilities.dtype), *orders, wants_orders)
    return grad_logits, probabilities.new_empty(0) if along is None else along


def class_loss(
    logits: Tensor, targets: Tensor, orders: Orders, ignore_index: int, reduction: str, wants_slopes: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See `backend.Implementation`."""
    try:
        found = kernel.class_loss(logits, targets, *orders, ignore_index, reduction == "none", wants_slopes)
    except LookupError as row:
        raise label_error_at(row, targets, logits, ignore_index) from None
    rows, counted, states, slopes = found
    loss, divisor = _reduced(rows, counted, reduction, logits)
    return loss, states, logits.new_empty(0) if slopes is None else slopes, divisor


def class_loss_backward(
    logits: Tensor, targets: Tensor, states: Tensor, grad: Tensor, orders: Orders, ignore_index: int
) -> Tensor:
    """See `backend.Implementation`."""
    grad = grad.to(logits.dtype)
    by_logits: Tensor = kernel.class_loss_backward(logits, targets, states, grad, orders[0], ignore_index, 1.0)
    return by_logits


def takes_alpha(logits: Tensor, alpha: float) -> bool:
    """α-ReLU is worth a kernel where its powers are products."""
    taken: bool = logits.dtype in DTYPES and kernel.takes_alpha(logits.element_size(), alpha)
    return taken


def alpha_relu_loss(
    logits: Tensor, targets: Tensor, alpha: float, tau: float, ignore_index: int, reduction: str
) -> tuple[Tensor, Tensor]:
    """See `backend.Implementation`."""
    try:
        rows, counted = kernel.alpha_relu_loss(logits, targets, alpha, tau, ignore_index, reduction == "none")
    except LookupError as row:
        raise label_error_at(row, targets, logits, ignore_index) from None
    return _reduced(rows, counted, reduction, logits)


def alpha_relu_loss_backward(
    logits: Tensor, targets: Tensor, grad: Tensor, alpha: float, tau: float, ignore_index: int
) -> Tensor:
    """See `backend.Implementation`."""
    grad = grad.to(logits.dtype)
    by_logits: Tensor = kernel.alpha_relu_loss_backward(logits, targets, grad, alpha, tau, ignore_index, 1.0)
    return by_logits


def _reduced(rows: Tensor | float, counted: int, reduction: str, like: Tensor) -> tuple[Tensor, Tensor]:
    """The reduced loss, from that of each row or their sum, and what a mean divides by."""
    divisor = counted if reduction == "mean" else 1
    return rows if isinstance(rows, Tensor) else quotient(rows, divisor, like), quotient(divisor, 1, like)


def quotient(total: float, divisor: float, like: Tensor) -> Tensor:
    """A tensor of no dimension, NaN where the divisor is 0."""
    return torch.scalar_tensor(total / divisor if divisor else math.nan, dtype=like.dtype, device="cpu")


def label_error_at(row: LookupError, targets: Tensor, logits: Tensor, ignore_index: int) -> ValueError:
    """The kernel says which row has a label out of range; this names the label."""
    return label_error(int(targets.flatten()[row.args[0]]), logits.shape[-1], ignore_index)
