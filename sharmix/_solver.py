"""The Sharma–Mittal map as one operator: which solution of the equation it takes, and where."""

import torch
from torch import Tensor

from sharmix._equation import Equation
from sharmix._global_maximum import global_maximum
from sharmix._knots import from_last_knot

_CONCAVITY_TOLERANCE = 1e-12  # a rounded r = 2 − 1/q counts as concave


def _is_concave(q: Tensor, r: Tensor) -> Tensor:
    """Whether the objective has one maximum for every row of logits: r ≥ 2 − 1/q (`math` section 3)."""
    return r >= 2 - 1 / q - _CONCAVITY_TOLERANCE


@torch.library.custom_op("sharmix::solve", mutates_args=())
def solve(x: Tensor, q: Tensor, r: Tensor, temperature: Tensor, nonconcave: str) -> tuple[Tensor, Tensor]:
    """The Sharma–Mittal map and its convex conjugate, for logits whose largest is 0.

    Args:
        x: logits minus their maximum, [..., classes].
        q, r, temperature: [..., 1], in their allowed ranges.
        nonconcave: `global` or `error`, for rows with r < 2 − 1/q.

    Returns:
        p* [..., classes] and Ω*(x) = p*·x + (T₀/q) H_{q,r}(p*) [...], in the dtype of x.

    Raises:
        ValueError: a row lies outside the concave region and `nonconcave` is `error`.
    """
    q_rows, r_rows, unit = (parameter.double().reshape(-1, 1) for parameter in (q, r, temperature))
    equation = Equation(x.double().reshape(-1, x.shape[-1]) / unit, q_rows, r_rows)
    concave = _is_concave(equation.q, equation.r).squeeze(-1)
    y = torch.zeros_like(equation.q)
    if concave.all():
        y = equation.root(*equation.bracket())
    elif nonconcave == "error":
        q_value, r_value = equation.q[~concave][0].item(), equation.r[~concave][0].item()
        raise ValueError(
            f"(q, r) = ({q_value:g}, {r_value:g}) lies outside the concave region r >= 2 - 1/q = {2 - 1 / q_value:g}, "
            "where the map may jump; raise r, or ask for nonconcave='global'"
        )
    else:
        some = equation.select(concave)
        y[concave] = some.root(*some.bracket())
        y[~concave] = global_maximum(equation.select(~concave))
    solution = equation.at(y)
    p, conjugate = solution.probabilities, solution.objective()
    steep = (equation.delta > 1).squeeze(-1)
    if steep.any():
        solution = from_last_knot(equation.select(steep), y[steep])
        p[steep], conjugate[steep] = solution.probabilities, solution.objective()
    conjugate = conjugate * unit
    return p.to(x.dtype).reshape(x.shape), conjugate.to(x.dtype).reshape(x.shape[:-1])


@solve.register_fake
def _(x: Tensor, q: Tensor, r: Tensor, temperature: Tensor, nonconcave: str) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape[:-1])


@solve.register_vmap
def _(info, in_dims, x, q, r, temperature, nonconcave):  # type: ignore[no-untyped-def]
    tensors = [
        tensor.expand(info.batch_size, *tensor.shape) if batched is None else tensor.movedim(batched, 0)
        for tensor, batched in zip((x, q, r, temperature), in_dims, strict=False)
    ]
    return solve(*tensors, nonconcave), (0, 0)
