"""Checks of the caller's arguments: one early, clear error, which names the value and the allowed values."""

import math
import os
import sys
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor, nn

from sharmix._caller import current_caller
from sharmix._private_torch import varies

Order = float | Tensor

HALF = (torch.float16, torch.bfloat16)
MOST_Q = 1000.0  # for larger q the rounding of p, times q, is more than 1e-13
CHECKS_EVERYWHERE = "1" in (os.environ.get("SHARMIX_CHECK"), os.environ.get("CUDA_LAUNCH_BLOCKING"))

# The range of each order: its least value, whether that value itself is allowed, and its largest value.
_ALLOWED = {
    "q": (1.0, True, MOST_Q),
    "alpha": (1.0, True, MOST_Q),
    "r": (0.0, False, math.inf),
    "temperature": (sys.float_info.min, True, math.inf),  # 1/T₀ of a smaller one is infinite
    "alpha of alpha-ReLU": (1.0, False, math.inf),
    "alpha of normmax": (1.0, False, MOST_Q),
    "alpha of the entmax package": (1.0, False, math.inf),
    "tau": (-math.inf, False, math.inf),
    "weight": (0.0, True, math.inf),
}


def may_read(values: Tensor) -> bool:
    """Whether a check may read values of a tensor.

    On a GPU the host would wait for all work before them. So they are read there only with SHARMIX_CHECK=1, or with
    CUDA_LAUNCH_BLOCKING=1, where the host waits anyway. Otherwise a value that is not allowed makes its row NaN.
    """
    return values.is_cpu or (CHECKS_EVERYWHERE and not values.is_meta)


def as_tensor(value: float) -> Tensor:
    """A number as a float64 tensor, in which 1 + 1e-9 differs from 1."""
    # By a product: the compiler makes a number that multiplies a tensor an input of its graph.
    return torch.ones((), dtype=torch.float64, device="cpu") * value


def dense_numbers(values: Tensor, name: str) -> Tensor:
    """`values`, after a check that they are a dense tensor of real floating-point numbers."""
    if not isinstance(values, Tensor) or not values.is_floating_point() or values.itemsize == 1:  # float8
        if isinstance(values, Tensor):
            kind, conversion = str(values.dtype), ".float()"
        else:
            kind, conversion = type(values).__name__, "torch.as_tensor"
        raise TypeError(f"{name} must be a floating-point tensor, got {kind}; convert it with {conversion}")
    if values.is_nested:
        conversion = "torch.nested.to_padded_tensor(logits, -torch.inf)"
        raise TypeError(f"{name} must be a dense tensor, got a nested one; convert it with {conversion}")
    if values.layout != torch.strided:
        raise TypeError(f"{name} must be a dense tensor, got {values.layout}; convert it with .to_dense()")
    return checked_memory(values)


def classes_last(values: Tensor, name: str, dim: int) -> Tensor:
    """`values` as `dense_numbers` checks them, with `dim` moved last."""
    values = dense_numbers(values, name)
    dims = values.dim()
    if not -dims <= checked_dim(dim) < dims:
        raise IndexError(f"dim={dim} is out of range for {name} of shape {tuple(values.shape)}")
    return values if dim == -1 or dim == dims - 1 else values.movedim(dim, -1)


def checked_dim(dim: int) -> int:
    """`dim`; TypeError if it is no integer."""
    if type(dim) is not int and not isinstance(dim, Integral):
        raise TypeError(f"dim={dim!r} is not allowed; it must be an integer, the dimension that holds the classes")
    return dim


def checked_memory(values: Tensor) -> Tensor:
    """`values`; RuntimeError if their storage was resized to 0: torch itself would crash when it reads them."""
    if torch.compiler.is_compiling() or type(values) not in (Tensor, nn.Parameter):
        return values
    try:
        if values.data_ptr():
            return values
        lost = values.is_cpu and values.layout == torch.strided and not values.untyped_storage().nbytes()
    except RuntimeError:  # a batch of torch.func or of is_grads_batched, or zero by a flag
        return values
    if lost and values.numel() > 0:
        raise RuntimeError("a tensor has entries but no memory, as after its storage was resized to 0")
    return values


def widened(values: Tensor) -> Tensor:
    """`values`, with half precision converted to float32."""
    return values.float() if values.dtype in HALF else values


def as_autocast(first: Tensor, *others: Tensor | None) -> Sequence[Any]:
    """The tensors in autocast's dtype where autocast is enabled, but for those of float64; None stays."""
    tensors, kind = (first, *others), first.device.type
    if not torch.is_autocast_enabled(kind):
        return tensors
    half = torch.get_autocast_dtype(kind)
    return [one if one is None or one.dtype == torch.float64 else one.to(half) for one in tensors]


def per_row(values: Tensor, dim: int, order: Order, name: str, of: str = "logits") -> Order:
    """An order as one value for all rows of `values`, or one for each row. The operators check its values later.

    A tensor that broadcasts against `values` with size 1 along `dim` becomes [..., 1]. `of` is what an error calls the
    values.
    """
    if not isinstance(order, Tensor):
        return number(order, name)
    if not order.is_floating_point():
        raise TypeError(f"{name} must be a number or a floating-point tensor, got {order.dtype}")
    if order.dim() == 0 and not order.is_meta and (order.is_cpu or values.is_cpu or order.device == values.device):
        return order
    if order.device != values.device:
        raise ValueError(f"{name} is on {order.device}, but the {of} are on {values.device}; move one of them")
    rows = list(values.shape)
    rows[dim] = 1
    try:
        expanded = order.expand(rows)
    except RuntimeError as error:
        raise ValueError(
            f"{name} of shape {tuple(order.shape)} does not broadcast against shape {tuple(values.shape)} "
            f"with size 1 along dim={dim}; reshape it to broadcast to {tuple(rows)}"
        ) from error
    return expanded.movedim(dim, -1)


def one_value(order: Order, name: str) -> Order:
    """An order as a number or a tensor of no dimension; ValueError if it holds several values."""
    if not isinstance(order, Tensor):
        return order
    if order.numel() != 1:
        raise ValueError(f"{name} of shape {tuple(order.shape)} is not allowed; it must hold one element")
    return order.reshape(())


def is_read(order: Tensor, logits: Tensor) -> bool:
    """Whether the host reads an order of one value; otherwise a kernel on a GPU does."""
    return may_read(order) or may_read(logits)


def number_if_read(order: Order, logits: Tensor) -> Order:
    """An order of one value as a number, if the host reads it."""
    return float(order.item()) if isinstance(order, Tensor) and is_read(order, logits) else order


def typed(order: Order, like: Tensor) -> Tensor:
    """An order as a tensor of the dtype of `like`."""
    if isinstance(order, Tensor):
        return order.to(like.dtype)
    return torch.scalar_tensor(order, dtype=like.dtype, device=like.device)


def number(value: float, name: str) -> float:
    """`value` as a float; TypeError if it is no number."""
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number or a floating-point tensor, got {type(value).__name__}")
    return float(value)


def checked_number(value: float, name: str) -> float:
    """`value` as a float; TypeError if it is no number, ValueError if it is out of the range of order `name`."""
    value = number(value, name)
    least, included, most = _ALLOWED[name]
    if not (math.isfinite(value) and (value > least or (included and value == least)) and value <= most):
        raise ValueError(_out_of_range(name, value))
    return value


def checked_values(values: Tensor, name: str) -> Tensor:
    """`values`; where one is out of the range of order `name`, ValueError, or NaN if it may not be read."""
    least, included, most = _ALLOWED[name]
    allowed = (values >= least if included else values > least) & values.isfinite() & (values <= most)
    if not may_read(values):
        return torch.where(allowed, values, torch.nan)
    if not allowed.all():
        raise ValueError(_out_of_range(name, values[~allowed][0].item()))
    return values


def checked(order: Order, name: str) -> Order:
    """A number or tensor, after a check of its range as order `name`; also works for traced or batched tensors."""
    if not isinstance(order, Tensor):
        if not varies(order):
            return checked_number(order, name)
        order = as_tensor(order)
    if not order.is_floating_point():
        raise TypeError(f"{name} must be a number or a floating-point tensor, got {order.dtype}")
    if current_caller().exports_to_onnx:  # `_export` looks at the values
        return order
    if hasattr(order, "full_tensor"):  # a DTensor
        checked_values(order.full_tensor().detach(), name)
        return order
    return order * ones_if_allowed(order.detach(), name)


def _out_of_range(name: str, value: float) -> str:
    least, included, most = _ALLOWED[name]
    bound = f" and {'>=' if included else '>'} {least:g}" if math.isfinite(least) else ""
    bound += f", and at most {most:g}" if math.isfinite(value) and value > most else ""
    return f"{name}={value!r} is not allowed; it must be finite{bound}"


def define_operator(
    name: str, schema: str, compute: Callable[..., Any], fake: Callable[..., Any]
) -> Callable[..., Any]:
    """An operator that torch's compilers and transforms know by its schema and by `fake`, which gives output shapes.

    `torch.library.custom_op` is not used: its first call imports torch's compiler, which takes two seconds.
    """
    torch.library.define(f"sharmix::{name}", schema, tags=torch.Tag.pt2_compliant_tag)
    torch.library.impl(f"sharmix::{name}", "default", compute)
    torch.library.register_fake(f"sharmix::{name}", fake)
    return getattr(torch.ops.sharmix, name).default


def check_operator(
    schema: str, fake: Callable[..., Tensor]
) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Make an operator of a check of values, with `fake` for its output's shape.

    Python cannot read the values of a traced or batched tensor, but an operator can. The caller uses the operator's
    output, so that a compiler cannot drop the check as dead code.
    """

    def decorate(check: Callable[..., Tensor]) -> Callable[..., Tensor]:
        name = check.__name__.lstrip("_")
        operator = define_operator(name, schema, check, fake)

        def batched(info: object, in_dims: tuple[int, ...], values: Tensor, *constants: object) -> tuple[Tensor, int]:
            return operator(values.movedim(in_dims[0], 0), *constants), 0  # one more row dimension

        torch.library.register_vmap(f"sharmix::{name}", batched)
        return operator

    return decorate


@check_operator("(Tensor values, str name) -> Tensor", lambda values, name: torch.ones_like(values))
def ones_if_allowed(values: Tensor, name: str) -> Tensor:
    return torch.where(checked_values(values, name).isnan(), torch.nan, 1.0).to(values.dtype)
