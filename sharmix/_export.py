"""The map for exporters that do not know the operators of this library, in operations that ONNX and core ATen have."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sharmix._arguments import Order, checked_number, checked_values, ones_if_allowed
from sharmix._mathematics.bisection import map_by_bisection
from sharmix._operators import torch_operators
from sharmix._private_torch import outside_of_trace, traced_tensor

_TOLERANCE = 1e-6  # an r = 2 − 1/q that was rounded to float32 still counts as concave


def export_decompositions() -> dict[Any, Callable[..., Any]]:
    """The table for `ExportedProgram.run_decompositions` that leaves no operator of this library's maps.

    It is torch's own table, with the map for 1 ≤ q ≤ 2 and r ≥ 2 − 1/q in core ATen operators: a fixed number of steps
    of bisection, in float64. ExecuTorch needs such a program. Losses keep their operators. Do not train the program:
    the steps of bisection do not have the gradient of the map.

    Raises:
        ValueError: `run_decompositions` raises it for numbers q and r that are not allowed. For tensors that are not,
            the program returns NaN.

    Source: docs/math.md, section 2.

    Example:
        >>> program = torch.export.export(sharmix.Entmax(), (torch.zeros(2, 3),))
        >>> program = program.run_decompositions(sharmix.export_decompositions())
        >>> program.module()(torch.tensor([[1.0, 0.5, -1.0], [0.0, 0.0, 0.0]]))[0]
        tensor([0.6740, 0.3260, 0.0000])
    """
    table = torch.export.default_decompositions()
    table[torch_operators.solve] = _decomposed_solve
    table[ones_if_allowed] = lambda values, name: torch.ones_like(values)  # `exportable_map` has the check
    return table


def check_exportable(q: Order, r: Order, temperature: Order) -> None:
    """Check the values that are known while a model is traced: numbers, and the parameters and buffers of modules."""
    with outside_of_trace():
        _check_orders(_known_values(q, "q"), _known_values(r, "r"))
        _known_values(temperature, "temperature")


def exportable_map(logits: Tensor, q: Order, r: Order, temperature: Order) -> Tensor:
    """p* of logits [..., classes] by operations that ONNX has; q, r and T₀ are numbers or broadcast to [..., 1].

    If q, r or T₀ is a tensor, its values can change after the export. p* is NaN for values that are not allowed.
    """
    p = map_by_bisection(logits, q, r, temperature)
    if not any(isinstance(order, Tensor) for order in (q, r, temperature)):
        return p
    q, r, temperature = (
        order if isinstance(order, Tensor) else torch.scalar_tensor(order, dtype=torch.float64, device=logits.device)
        for order in (q, r, temperature)
    )
    allowed = (q >= 1) & (temperature > 0) & ~_cannot_be_exported(q, r)
    return torch.where(allowed, p, math.nan)


def _decomposed_solve(logits: Tensor, *others: Any) -> Any:
    if others[-1]:  # a loss wants the conjugate, too: the operator stays
        return NotImplemented
    orders = torch_operators.joined(others)
    q, r, _ = (math.nan if isinstance(order, Tensor) else order for order in orders)
    with outside_of_trace():
        _check_orders(torch.tensor(q), torch.tensor(r))
    return exportable_map(logits, *orders), logits.new_empty(0)


def _check_orders(q: Tensor, r: Tensor) -> None:
    refused = _cannot_be_exported(q, r)
    if refused.any():
        q_value, r_value = (order.expand(refused.shape)[refused][0].item() for order in (q, r))
        given = f"q = {q_value:g}" if math.isnan(r_value) else f"(q, r) = ({q_value:g}, {r_value:g})"  # r is an input
        needed = f"the exported map needs q <= 2 and r >= 2 - 1/q = {2 - 1 / q_value:g}"
        raise ValueError(f"{given} cannot be exported to ONNX or core ATen: {needed}")


def _known_values(order: Order, name: str) -> Tensor:
    """The order's values, after a check of their range; NaN if they are only computed in the trace."""
    if not isinstance(order, Tensor):
        return torch.tensor(checked_number(order, name), dtype=torch.float64)
    values = traced_tensor(order)
    return torch.tensor(math.nan) if values is None else checked_values(values.detach(), name).double()


def _cannot_be_exported(q: Tensor, r: Tensor) -> Tensor:
    return (r < 2 - 1 / q - _TOLERANCE) | (q > 2)
