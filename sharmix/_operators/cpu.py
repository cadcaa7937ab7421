"""The compiled CPU kernel: its builds, and its functions on tensors, for `backend.Implementation` and the fast path.

The kernel reads and writes plain memory: this module makes tensors contiguous, allocates the results and passes
addresses. Each order is a number, or a tensor of float64 [rows, 1]; for α-ReLU r is None.
"""

import importlib
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from sharmix._arguments import label_error
from sharmix._operators.orders import LossOrders, Orders, largest
from sharmix._private_torch import parallel_loop

DTYPES = (torch.float32, torch.float64)
BUILDS = {"AVX512": ("avx512", "avx2"), "AVX2": ("avx2",)}  # to try first, by the capability that torch reports
SMALL = 1 << 15  # logits, up to which the forward pass of a loss computes its gradient too, and saves a second pass
_SOURCES = sorted(Path(__file__).parents[1].glob("csrc/[a-z]*.*"))  # none in an installation from a wheel
_DIGEST = str(zlib.crc32(b"".join(file.read_bytes() for file in _SOURCES))) if _SOURCES else None  # as in setup.py
_SCALARS = {dtype: torch.empty((), dtype=dtype, device="cpu") for dtype in DTYPES}


failures: dict[str, ImportError] = {}  # why the builds do not load that this processor would prefer, by name


def _load() -> ModuleType | None:
    """The build for this processor, or None if there is none, as after an installation without a compiler."""
    failures.clear()
    for name in (*BUILDS.get(torch.backends.cpu.get_cpu_capability(), ()), "baseline"):
        try:
            return _build(name)
        except ImportError as error:
            failures[name] = error
    return None


def _build(name: str) -> ModuleType:
    """The kernel's build `name`; ImportError if it is missing, or was compiled from other C++ sources."""
    kernel = importlib.import_module(f"sharmix._kernel_{name}")
    if _DIGEST not in (None, kernel.__doc__):
        raise ImportError("it was compiled from other C++ sources; install sharmix again, by pip or `make setup`")
    kernel.use_parallel_loop(parallel_loop())
    return kernel


kernel: Any = _load()


def supports(logits: Tensor, orders: LossOrders) -> bool:
    """Whether the kernel supports these logits and orders.

    For q > 2 a class joins the support with infinite slope, and the root must be measured from there (`knots`).
    """
    q, r, _ = orders
    can: bool = kernel.takes_alpha(q, logits.dtype == torch.float32) if r is None else largest(q) <= 2
    return logits.dtype in DTYPES and can


def solve(logits: Tensor, orders: Orders, wants_conjugate: bool) -> tuple[Tensor, Tensor]:
    conjugate = logits.new_empty(logits.shape[:-1] if wants_conjugate else 0)
    return probabilities(logits, _columns(orders), conjugate if wants_conjugate else None), conjugate


def probabilities(logits: Tensor, orders: Any, conjugate: Tensor | None = None) -> Tensor:
    """p* of logits; the conjugate is written if there is a tensor for it."""
    logits = _readable(logits)
    p = torch.empty_like(logits)
    conjugate_address = 0 if conjugate is None else conjugate.data_ptr()
    kernel.solve(*_shape(logits), *orders, _address(logits), p.data_ptr(), conjugate_address)
    return p


def map_backward(probabilities: Tensor, grad: Tensor, orders: Orders, wants_orders: bool) -> tuple[Tensor, Tensor]:
    by_orders = probabilities.new_empty((*probabilities.shape[:-1], 3) if wants_orders else 0)
    grad = grad.to(probabilities.dtype)
    by_logits, _ = map_gradient(probabilities, grad, _columns(orders), False, by_orders.data_ptr())
    return by_logits, by_orders


def map_gradient(
    p: Tensor, grad: Tensor, orders: Any, wants_sums: bool, by_orders: int = 0
) -> tuple[Tensor, tuple[float, ...]]:
    """(∂p/∂z) grad, and the sums over all rows of (∂p/∂θ)·grad; those of each row are written at `by_orders`."""
    p, grad = _readable(p), _readable(grad)
    if grad.dtype is not p.dtype or grad.shape != p.shape:
        raise RuntimeError("the gradient of a map has the shape and dtype of its probabilities")
    by_logits = torch.empty_like(p)
    inputs = _address(p), _address(grad), by_logits.data_ptr(), by_orders, wants_sums
    return by_logits, kernel.map_backward(*_shape(p), *orders, *inputs)


def class_loss(
    logits: Tensor, targets: Tensor, orders: LossOrders, ignore_index: int, reduction: str, wants_slopes: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    logits, rows, mean = _readable(logits), logits.shape[:-1], reduction == "mean"
    targets = _checked_entries(targets, torch.int64, rows.numel())
    loss = torch.empty_like(_SCALARS[logits.dtype])
    losses = logits.new_empty(rows if reduction == "none" else 0)
    states = logits.new_empty(0) if orders[1] is None else logits.new_empty((*rows, 4), dtype=torch.float64)
    slopes = logits.new_empty((*rows, 3) if wants_slopes else 0)
    inputs = _address(logits), _address(targets), ignore_index, mean
    results = loss.data_ptr(), losses.data_ptr(), states.data_ptr(), slopes.data_ptr(), False, 0
    counted, *_ = kernel.class_loss(*_shape(logits), *_columns(orders), *inputs, *results)
    _check_row(-1 - counted, targets, logits, ignore_index)
    divisor = number_like(loss, counted if mean else 1)
    return losses if reduction == "none" else loss, states, slopes, divisor


def class_loss_of_node(
    logits: Tensor, targets: Tensor, orders: Any, ignore_index: int, mean: bool, wants_gradient: bool, wants_sums: bool
) -> tuple[Tensor, Tensor | None, Tensor | None, float, Any]:
    """The mean or sum of the losses; for its backward pass the states or the gradient, the divisor, sums of slopes."""
    logits = _readable(logits if logits.dtype in DTYPES else logits.float())
    loss = torch.empty_like(_SCALARS[logits.dtype])
    states = gradient = None
    states_to = gradient_to = 0
    entries, classes = logits.numel(), logits.size(-1)
    rows = entries // classes
    targets = _checked_entries(targets, torch.int64, rows)
    if orders[1] is not None and wants_gradient and entries <= SMALL:
        gradient = torch.empty_like(logits)
        gradient_to = gradient.data_ptr()
    elif orders[1] is not None and wants_gradient:
        states = _SCALARS[torch.float64].new_empty(4 * rows)
        states_to = states.data_ptr()
    inputs = _address(logits), _address(targets), ignore_index, mean
    results = loss.data_ptr(), 0, states_to, 0, wants_sums, gradient_to
    found = kernel.class_loss(logits.element_size(), rows, classes, *orders, *inputs, *results)
    counted = found[0]
    _check_row(-1 - counted, targets, logits, ignore_index)
    return loss, states, gradient, counted or 1.0 if mean else 1.0, found[1:]


def class_loss_backward(
    logits: Tensor, targets: Tensor, states: Tensor, grad: Tensor, orders: LossOrders, ignore_index: int
) -> Tensor:
    return class_loss_gradient(logits, targets, states, grad.to(logits.dtype), _columns(orders), ignore_index, 1.0)


def class_loss_gradient(
    logits: Tensor,
    targets: Tensor,
    states: Any,  # None for α-ReLU
    grad: Tensor,
    orders: Any,
    ignore_index: int,
    divisor: float,
) -> Tensor:
    """The gradient by the logits for one grad for each row or one for all, divided by `divisor`."""
    logits = _readable(logits if logits.dtype in DTYPES else logits.float())
    size, rows, classes = _shape(logits)
    targets, grad = _checked_entries(targets, torch.int64, rows), _checked_entries(grad, logits.dtype, 1)
    step = int(grad.numel() > 1)
    if step and grad.numel() != rows:
        raise RuntimeError("a loss has one gradient, or one for each row")
    states_at = 0
    if orders[1] is not None:
        states = _checked_entries(states, torch.float64, 4 * rows)
        states_at = _address(states)
    by_logits = torch.empty_like(logits)
    inputs = _address(logits), _address(targets), ignore_index, states_at, _address(grad), step, divisor
    row = kernel.class_loss_backward(size, rows, classes, *orders, *inputs, by_logits.data_ptr())
    _check_row(row, targets, logits, ignore_index)
    return by_logits


def number_like(tensor: Tensor, value: float) -> Tensor:
    """A number as a tensor of no dimension, with the dtype and device of `tensor`, which has no dimension either."""
    if tensor.dtype is not torch.float32:
        return tensor.new_full((), value)
    number = torch.empty_like(tensor)
    kernel.write_float(number.data_ptr(), value)  # new_full makes a loss with learned orders 1.5 % slower at 64 × 3
    return number


def _check_row(row: float, targets: Tensor, logits: Tensor, ignore_index: int) -> None:
    """ValueError if the kernel reports a row, whose target is no class; it reports -1 if there is none."""
    if row >= 0:
        raise label_error(int(targets.flatten()[int(row)]), logits.shape[-1], ignore_index)


def _shape(logits: Tensor) -> tuple[int, int, int]:
    """The bytes of an entry, the number of rows and the number of classes."""
    classes = logits.size(-1)
    return logits.element_size(), logits.numel() // classes, classes


def _columns(orders: Any) -> list[Any]:
    """The orders for the kernel: a tensor of one value for each row is passed by its address."""
    return [_address(order) if isinstance(order, Tensor) else order for order in orders]


def _readable(tensor: Tensor) -> Tensor:
    """The tensor as one whose memory holds its values: contiguous, and with its own sign."""
    tensor = tensor.contiguous()
    return tensor.resolve_neg() if tensor.is_neg() else tensor


def _checked_entries(tensor: Tensor, dtype: torch.dtype, entries: int) -> Tensor:
    """The tensor as at least this many readable entries of a dtype; a hook can change a saved tensor."""
    tensor = _readable(tensor)
    if tensor.dtype is not dtype:
        tensor = tensor.to(dtype)
    if tensor.numel() < entries:
        raise RuntimeError(f"a tensor of {tensor.numel()} entries stands where {entries} are needed")
    return tensor


def _address(tensor: Tensor) -> int:
    address = tensor.data_ptr()
    if not address:
        raise RuntimeError("a tensor has entries but no memory, as after its storage was resized to 0")
    return address
