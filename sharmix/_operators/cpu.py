"""The compiled CPU kernel: its builds, and its functions on tensors, which are those of `backend.Implementation`.

The kernel reads and writes plain memory: this module makes tensors contiguous, allocates the results and passes
addresses. Each order is a number, or a tensor of float64 [rows, 1]. A hook of saved tensors may give the backward pass
half precision, which becomes float32 here.
"""

import importlib
import zlib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from sharmix._arguments import widened
from sharmix._operators.any_device import keeps_gradient as keeps_gradient
from sharmix._operators.any_device import scaled as scaled
from sharmix._operators.orders import Orders, Slopes, are_numbers, largest
from sharmix._private_torch import parallel_loop
from sharmix._targets import label_error

DTYPES = (torch.float32, torch.float64)
BUILDS = {"AVX512": ("avx512", "avx2"), "AVX2": ("avx2",)}  # to try first, by the capability that torch reports
_SOURCES = sorted(Path(__file__).parents[1].glob("csrc/[a-z]*.*"))  # none in an installation from a wheel
_DIGEST = str(zlib.crc32(b"".join(file.read_bytes() for file in _SOURCES))) if _SOURCES else None  # as in setup.py
_SCALARS = {dtype: torch.empty((), dtype=dtype, device="cpu") for dtype in DTYPES}
_NOWHERE = 0, 0, 0, 0  # the addresses of slopes that nobody wants


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


def supports(logits: Tensor, orders: Orders) -> bool:
    """Whether the kernel supports these logits and orders.

    For q > 2 a class joins the support with infinite slope, and the root must be measured from there (`knots`).
    """
    return logits.dtype in DTYPES and largest(orders[0]) <= 2


def solve(logits: Tensor, orders: Orders, wants_conjugate: bool, keeps: bool) -> tuple[Tensor, Any, Sequence[Tensor]]:
    logits = _readable(logits)
    p = torch.empty_like(logits)
    conjugate = logits.new_empty(logits.shape[:-1]) if wants_conjugate else None
    kernel.solve(*_shape(logits), *_columns(orders), _address(logits), p.data_ptr(), _result(conjugate))
    return p, conjugate, ()


def map_backward(
    probabilities: Tensor, grad: Tensor, orders: Orders, slopes: str, kept: Sequence[Tensor] = ()
) -> tuple[Tensor, Slopes]:
    p, grad = _readable(widened(probabilities)), _readable(grad)
    if grad.dtype is not p.dtype:
        grad = grad.to(p.dtype)
    if grad.shape != p.shape:
        raise RuntimeError("the gradient of a map has the shape of its probabilities")
    by_logits = torch.empty_like(p)
    found, addresses = _slopes(p, slopes)
    inputs = _address(p), _address(grad), by_logits.data_ptr()
    kernel.map_backward(*_shape(p), *_columns(orders), *inputs, *addresses)
    return by_logits, found


def class_loss(
    logits: Tensor, targets: Tensor, orders: Orders, ignore_index: int, reduction: str, slopes: str, keeps: str
) -> tuple[Tensor, Tensor | None, Tensor | None, Slopes, float]:
    logits = _readable(widened(logits))
    size, rows, classes = _shape(logits)
    targets = _checked_entries(targets, torch.int64, rows)
    loss, losses = _losses(logits, reduction)
    states = gradient = None
    if keeps == "gradient":
        gradient = torch.empty_like(logits)
    elif keeps != "nothing":
        states = logits.new_empty((*logits.shape[:-1], 4), dtype=torch.float64)
    found, addresses = _slopes(logits, slopes)
    inputs = _address(logits), _address(targets), ignore_index, reduction == "mean"
    results = loss.data_ptr(), _result(losses), _result(states), _result(gradient), *addresses
    divisor = kernel.class_loss(size, rows, classes, *_columns(orders), *inputs, *results)
    if divisor < 0:
        raise _label_error(-1 - divisor, targets, logits, ignore_index)
    return loss if losses is None else losses, states, gradient, found, divisor


def class_loss_backward(
    logits: Tensor,
    targets: Tensor,
    states: Tensor,
    grad: Tensor,
    orders: Orders,
    ignore_index: int,
    divisor: float | Tensor,
) -> Tensor:
    logits = _readable(widened(logits))
    size, rows, classes = _shape(logits)
    targets, states = _checked_entries(targets, torch.int64, rows), _checked_entries(states, torch.float64, 4 * rows)
    grad, step = _gradient_of_rows(grad, logits, rows)
    by_logits = torch.empty_like(logits)
    inputs = _address(logits), _address(targets), ignore_index, _address(states), _address(grad), step, divisor
    row = kernel.class_loss_backward(size, rows, classes, *_columns(orders), *inputs, by_logits.data_ptr())
    if row >= 0:
        raise _label_error(row, targets, logits, ignore_index)
    return by_logits


def alpha_relu_loss(
    logits: Tensor, targets: Tensor, alpha: float, tau: float, ignore_index: int, reduction: str
) -> tuple[Tensor, float]:
    """The reduced loss of α-ReLU against class indices [...], and the divisor of its gradient."""
    logits = _readable(logits)
    size, rows, classes = _shape(logits)
    targets = _checked_entries(targets, torch.int64, rows)
    loss, losses = _losses(logits, reduction)
    inputs = _address(logits), _address(targets), ignore_index, reduction == "mean"
    divisor = kernel.alpha_relu_loss(size, rows, classes, alpha, tau, *inputs, loss.data_ptr(), _result(losses))
    if divisor < 0:
        raise _label_error(-1 - divisor, targets, logits, ignore_index)
    return loss if losses is None else losses, divisor


def alpha_relu_loss_backward(
    logits: Tensor, targets: Tensor, grad: Tensor, alpha: float, tau: float, ignore_index: int, divisor: float
) -> Tensor:
    """grad (p − y)/divisor, with p of α-ReLU, for one grad for each row, [...], or one grad for all rows."""
    logits = _readable(widened(logits))
    size, rows, classes = _shape(logits)
    targets = _checked_entries(targets, torch.int64, rows)
    grad, step = _gradient_of_rows(grad, logits, rows)
    by_logits = torch.empty_like(logits)
    inputs = _address(logits), _address(targets), ignore_index, _address(grad), step, divisor
    row = kernel.alpha_relu_loss_backward(size, rows, classes, alpha, tau, *inputs, by_logits.data_ptr())
    if row >= 0:
        raise _label_error(row, targets, logits, ignore_index)
    return by_logits


def screen(
    layer: tuple[Tensor, Tensor, Tensor | None, Tensor],
    product: Tensor,
    norms: tuple[Tensor, Tensor],
    orders: Sequence[float],
    room: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The classes of each row that can be in the support, and the target, by a product in bfloat16.

    Args:
        layer: contiguous float32 hidden [rows, features], weight [classes, features] and bias, and targets [rows],
            which are classes.
        product: hidden · weightᵀ in bfloat16, of the rounded matrices.
        norms: [2, rows] and [2, classes], as `_layer_screened.rounded` returns them.
        orders: q, r and T₀, with q in (1, 2].
        room: the length of a list.

    Returns:
        The number of classes of each row, [rows], or −1 if it has no list, because the product leaves `room` or more or
        a number is not finite; their logits and numbers, [rows, room], filled up with −∞; and the place of the target
        in the list, [rows].
    """
    hidden, weight, bias, targets = layer
    rows, classes = product.shape
    counts, own = torch.empty_like(targets), torch.empty_like(targets)
    logits, places = hidden.new_empty(rows, room), targets.new_empty(rows, room, dtype=torch.int32)
    inputs = _address(hidden), _address(weight), _result(bias), _address(product), *map(_address, norms)
    results = counts.data_ptr(), logits.data_ptr(), places.data_ptr(), own.data_ptr()
    sizes = rows, classes, hidden.shape[1]
    kernel.screen(*sizes, *orders, *inputs, _address(targets), room, *results)
    return counts, logits, places, own


def _losses(logits: Tensor, reduction: str) -> tuple[Tensor, Tensor | None]:
    """Memory for the sum or mean of the losses, and if they are wanted for those of the rows."""
    losses = logits.new_empty(logits.shape[:-1]) if reduction == "none" else None
    return torch.empty_like(_SCALARS[logits.dtype]), losses


def _slopes(values: Tensor, kind: str) -> tuple[Slopes, tuple[int, ...]]:
    """Memory for the slopes by q, r and T₀ of each row, or for their sums over the rows, and its addresses."""
    if kind == "none":
        return None, _NOWHERE
    if kind == "rows":
        slopes = values.new_empty((*values.shape[:-1], 3))
        return slopes, (slopes.data_ptr(), 0, 0, 0)
    like = _SCALARS[values.dtype]  # three tensors, because autograd adds up views of one tensor more slowly
    by_q, by_r, by_temperature = torch.empty_like(like), torch.empty_like(like), torch.empty_like(like)
    return (by_q, by_r, by_temperature), (0, by_q.data_ptr(), by_r.data_ptr(), by_temperature.data_ptr())


def _gradient_of_rows(grad: Tensor, logits: Tensor, rows: int) -> tuple[Tensor, int]:
    """The gradient of each row's loss, or one for all rows, and the step from one row's to the next, 0 or 1."""
    grad = _checked_entries(grad, logits.dtype, 1)
    step = int(grad.numel() > 1)
    if step and grad.numel() != rows:
        raise RuntimeError("a loss has one gradient, or one for each row")
    return grad, step


def _label_error(row: float, targets: Tensor, logits: Tensor, ignore_index: int) -> ValueError:
    """The error for a row whose target is no class, as the kernel reports."""
    return label_error(int(targets.flatten()[int(row)]), logits.shape[-1], ignore_index)


def _result(tensor: Tensor | None) -> int:
    """The address of a result; 0 if it is not wanted."""
    return 0 if tensor is None else tensor.data_ptr()


def _shape(logits: Tensor) -> tuple[int, int, int]:
    """The bytes of an entry, the number of rows and the number of classes."""
    classes = logits.size(-1)
    return logits.element_size(), logits.numel() // classes, classes


def _columns(orders: Orders) -> Sequence[Any]:
    """The orders for the kernel: a tensor of one value for each row is passed by its address."""
    if are_numbers(orders):
        return orders
    return [_address(order) if isinstance(order, Tensor) else order for order in orders]


def _readable(tensor: Tensor) -> Tensor:
    """The tensor as one whose memory holds its values: contiguous, and with its own sign."""
    return tensor if tensor.is_contiguous() and not tensor.is_neg() else tensor.contiguous().resolve_neg()


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
