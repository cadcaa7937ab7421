"""q, r and T₀ in the form that implementations expect: one number for all rows, or one for each row.

On a GPU, where the host would wait for the value of a tensor, tensors stay as they are and nobody has checked them
(`may_read`). An implementation gives NaN for a row whose order is NaN or out of its range.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from sharmix._arguments import Order, checked_number, checked_values, may_read, number_if_read, widened

# q, r, T₀: a number, or [rows, 1] in `solving_dtype`; on a GPU also one value for all rows, float32 or float64 [1]
Orders = tuple[float | Tensor, float | Tensor, float | Tensor]
Slopes = Tensor | tuple[Tensor, ...] | None  # by q, r and T₀: of each row, [..., 3]; or three sums over the rows

MOST_CLASSES = 2**31 - 1
LARGEST_EXPONENT = 500.0  # of classes^(r−1), the scale of tied logits: float64 ends at 1e308, and leaves some room
CONCAVITY_TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-6}  # a rounded r = 2 − 1/q counts as concave
_WITHOUT_FLOAT64 = ("mps",)  # the types of devices that have no float64: the GPU of a Mac


def solving_dtype(device: torch.device) -> torch.dtype:
    """The dtype in which plain torch solves on a device: float64, or float32 where the device has no float64."""
    return torch.float32 if device.type in _WITHOUT_FLOAT64 else torch.float64


def checked_orders(logits: Tensor, orders: tuple[Order, Order, Order], nonconcave: str = "global") -> Orders:
    """Checked q, r and T₀, from numbers or from tensors that broadcast to [..., 1] for logits [..., classes]."""
    if are_numbers(orders):
        return _checked_numbers(*orders, logits.shape[-1], nonconcave)
    q, r, temperature = orders
    values = _order(q, "q", logits), _order(r, "r", logits), _order(temperature, "temperature", logits)
    return _checked_together(values, logits.shape[-1], nonconcave)


@lru_cache(maxsize=256)  # the check of three numbers takes a fortieth of the map's step at 64 × 3
def _checked_numbers(q: float, r: float, temperature: float, classes: int, nonconcave: str) -> Orders:
    orders = checked_number(q, "q"), checked_number(r, "r"), checked_number(temperature, "temperature")
    return _checked_together(orders, classes, nonconcave)


def _checked_together(orders: Orders, classes: int, nonconcave: str) -> Orders:
    q, r, temperature = orders
    if classes > MOST_CLASSES:
        raise ValueError(f"{classes} classes are not allowed; they must be at most {MOST_CLASSES}, as kernels count")
    if _is_read(r):
        _refuse_steep(r, classes)
    if nonconcave == "global":
        return orders
    if nonconcave != "error":
        raise ValueError(f"nonconcave={nonconcave!r} is not allowed; it must be 'global' or 'error'")
    if _is_read(q) and _is_read(r):
        _refuse_nonconcave(q, r)
        return orders
    device = q.device if isinstance(q, Tensor) else r.device  # type: ignore[union-attr]
    dtype = solving_dtype(device)
    concave = is_concave(*(order.to(dtype) if isinstance(order, Tensor) else order for order in (q, r)))
    return q, torch.where(concave, 0.0, torch.nan).to(dtype) + r, temperature


def _is_read(order: float | Tensor) -> bool:
    return not isinstance(order, Tensor) or may_read(order)


def are_numbers(orders: Sequence[Any]) -> bool:
    q, r, temperature = orders
    return type(q) is float and type(r) is float and type(temperature) is float


def hold_one_value(orders: Orders) -> bool:
    """Whether each order has one value for all rows."""
    return are_numbers(orders) or not any(isinstance(order, Tensor) and order.numel() > 1 for order in orders)


def _order(order: Order, name: str, logits: Tensor) -> float | Tensor:
    if isinstance(order, Tensor):
        if order.numel() != 1:
            rows, values = (*logits.shape[:-1], 1), checked_values(order, name) if may_read(order) else order
            values = values.to(solving_dtype(logits.device))
            return values.expand(rows).reshape(-1, 1).contiguous().resolve_neg()
        order = number_if_read(order, logits)
        if isinstance(order, Tensor):
            return widened(order.detach()).reshape(1).resolve_neg()
    return order if 1 <= order <= 2 else checked_number(order, name)  # values from 1 to 2 are allowed for every order


def _refuse_steep(r: float | Tensor, classes: int) -> None:
    if isinstance(r, float) and r <= 2:
        return
    most = _most_r(classes)
    value = largest(r) if isinstance(r, float) or r.numel() else 0.0
    if value > most:
        allowed = f"it must be at most {most:.4g}, for the scale of tied logits is classes^(r - 1)"
        raise ValueError(f"r={value!r} (of entmax, alpha) is not allowed with {classes} classes; {allowed}")


def _most_r(classes: int) -> float:
    return 1 + LARGEST_EXPONENT / math.log(max(2, classes))


def _refuse_nonconcave(q: float | Tensor, r: float | Tensor) -> None:
    concave = torch.as_tensor(is_concave(q, r))
    if not concave.all():
        q_value, r_value = (order[~concave][0].item() if isinstance(order, Tensor) else order for order in (q, r))
        region = f"outside the concave region r >= 2 - 1/q = {2 - 1 / q_value:g}, where the map may jump"
        raise ValueError(f"(q, r) = ({q_value:g}, {r_value:g}) lies {region}")


def is_concave(q: float | Tensor, r: float | Tensor) -> Any:
    """Whether the objective has one maximum for every row of logits: r ≥ 2 − 1/q (docs/math.md, section 3)."""
    distance = r - (2 - 1 / q)
    dtype = distance.dtype if isinstance(distance, Tensor) else torch.float64
    return distance >= -CONCAVITY_TOLERANCE[dtype]


def largest(order: float | Tensor) -> float:
    return order if isinstance(order, float) else order.max().item()


def columns(orders: Orders, rows: Tensor) -> list[Tensor]:
    """Each order as [rows, 1] on the device of the rows, in its `solving_dtype`.

    It is NaN where an unchecked value is out of its range.
    """
    named = zip(orders, ("q", "r", "temperature"), strict=True)
    return [_column(order, name, rows) for order, name in named]


def _column(order: float | Tensor, name: str, rows: Tensor) -> Tensor:
    dtype = solving_dtype(rows.device)
    if not isinstance(order, Tensor):
        return rows.new_full((len(rows), 1), order, dtype=dtype)
    if not may_read(order):
        order = checked_values(order.to(dtype), name)
        if name == "r":
            order = torch.where(order <= _most_r(rows.shape[-1]), order, torch.nan)
    return order.to(rows.device).expand(len(rows), 1)
