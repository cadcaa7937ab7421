"""The map for `torch.onnx.export`, in operations that ONNX has: ONNX does not know the operators of this library."""

import math

import torch
from torch import Tensor

from sharmix._arguments import Order, checked_number, checked_values
from sharmix._mathematics.bisection import map_by_bisection
from sharmix._private_torch import outside_of_trace, traced_tensor

_TOLERANCE = 1e-6  # an r = 2 − 1/q that was rounded to float32 still counts as concave


def check_exportable(q: Order, r: Order, temperature: Order) -> None:
    """Check the values that are known while a model is traced: numbers, and the parameters and buffers of modules."""
    with outside_of_trace():
        q, r, _ = _known_values(q, "q"), _known_values(r, "r"), _known_values(temperature, "temperature")
        refused = _cannot_be_exported(q, r)
        if refused.any():
            q_value, r_value = (order.expand(refused.shape)[refused][0].item() for order in (q, r))
            needed = f"the exported map needs q <= 2 and r >= 2 - 1/q = {2 - 1 / q_value:g}"
            raise ValueError(f"(q, r) = ({q_value:g}, {r_value:g}) cannot be exported to ONNX: {needed}")


def exportable_map(logits: Tensor, q: Order, r: Order, temperature: Order) -> Tensor:
    """p* of logits [..., classes] by operations that ONNX has; q, r and T₀ are numbers or broadcast to [..., 1].

    If q, r or T₀ is a tensor, its values can change after the export. p* is NaN for values that are not allowed.
    """
    p = map_by_bisection(logits, q, r, temperature)
    if not any(isinstance(order, Tensor) for order in (q, r, temperature)):
        return p
    allowed = torch.as_tensor((q >= 1) & (temperature > 0)) & ~_cannot_be_exported(q, r)
    return torch.where(allowed, p, math.nan)


def _known_values(order: Order, name: str) -> Tensor:
    """The order's values, after a check of their range; NaN if they are only computed in the trace."""
    if not isinstance(order, Tensor):
        return torch.tensor(checked_number(order, name), dtype=torch.float64)
    values = traced_tensor(order)
    return torch.tensor(math.nan) if values is None else checked_values(values.detach(), name).double()


def _cannot_be_exported(q: Order, r: Order) -> Tensor:
    return torch.as_tensor((r < 2 - 1 / q - _TOLERANCE) | (q > 2))
