"""The compiled CPU kernel: which of its builds is loaded, and its functions on tensors."""

import importlib
import math
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from sharmix._arguments import label_error
from sharmix._operators.orders import LossOrders, Orders, largest
from sharmix._private_torch import kernel_doors

DTYPES = (torch.float32, torch.float64)
BUILDS = {"AVX512": ("avx512", "avx2"), "AVX2": ("avx2",)}  # to try first, by the capability that torch reports


def _load() -> ModuleType | None:
    """The build for this processor, or None if there is none, as after an installation without a compiler."""
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


def supports(logits: Tensor, orders: LossOrders) -> bool:
    """Whether the kernel supports these logits and orders.

    For q > 2 a class joins the support with infinite slope, and the root must be measured from there (`knots`).
    """
    q, r, _ = orders
    can: bool = kernel.takes_alpha(q, logits.dtype == torch.float32) if r is None else largest(q) <= 2
    return logits.dtype in DTYPES and can


def solve(logits: Tensor, orders: Orders, wants_conjugate: bool) -> tuple[Tensor, Tensor]:
    """See `backend.Implementation`."""
    found = kernel.solve(logits, *orders, wants_conjugate)
    return found if wants_conjugate else (found, logits.new_empty(0))


def map_backward(probabilities: Tensor, grad: Tensor, orders: Orders, wants_orders: bool) -> tuple[Tensor, Tensor]:
    """See `backend.Implementation`."""
    grad_logits, along = kernel.map_backward(probabilities, grad.to(probabilities.dtype), *orders, wants_orders)
    return grad_logits, probabilities.new_empty(0) if along is None else along


def class_loss(
    logits: Tensor, targets: Tensor, orders: LossOrders, ignore_index: int, reduction: str, wants_slopes: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See `backend.Implementation`."""
    try:
        found = kernel.class_loss(logits, targets, *orders, ignore_index, reduction == "none", wants_slopes)
    except LookupError as row:
        raise label_error_at(row, targets, logits, ignore_index) from None
    rows, counted, states, slopes = found
    divisor = counted if reduction == "mean" else 1
    loss = rows if isinstance(rows, Tensor) else _quotient(rows, divisor, logits)
    empty = logits.new_empty(0)
    return loss, empty if states is None else states, empty if slopes is None else slopes, _quotient(divisor, 1, logits)


def class_loss_backward(
    logits: Tensor, targets: Tensor, states: Tensor, grad: Tensor, orders: LossOrders, ignore_index: int
) -> Tensor:
    """See `backend.Implementation`."""
    grad = grad.to(logits.dtype)
    by_logits: Tensor = kernel.class_loss_backward(logits, targets, states, grad, ignore_index, 1.0, *orders)
    return by_logits


def _quotient(total: float, divisor: float, like: Tensor) -> Tensor:
    """The quotient as a tensor of no dimension; NaN if the divisor is 0."""
    return torch.scalar_tensor(total / divisor if divisor else math.nan, dtype=like.dtype, device="cpu")


def label_error_at(row: LookupError, targets: Tensor, logits: Tensor, ignore_index: int) -> ValueError:
    """The error for a label out of range, from the row that the kernel reports."""
    return label_error(int(targets.flatten()[row.args[0]]), logits.shape[-1], ignore_index)
