"""The map solved in plain torch, on any device: what answers where there is no kernel, and the kernels' reference."""

import torch
from torch import Tensor

from sharmix._equation import Equation
from sharmix._global_maximum import global_maximum
from sharmix._knots import from_last_knot

_CONCAVITY_TOLERANCE = 1e-12  # a rounded r = 2 − 1/q counts as concave


def is_concave(q: Tensor, r: Tensor) -> Tensor:
    """Whether the objective has one maximum for every row of logits: r ≥ 2 − 1/q (`math` section 3)."""
    return r >= 2 - 1 / q - _CONCAVITY_TOLERANCE


def solve(logits: Tensor, q: Tensor, r: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
    """p* and its conjugate.

    Args:
        logits: [rows, classes].
        q, r, temperature: [rows, 1], float64, in their allowed ranges.

    Returns:
        p* [rows, classes] and Ω*(x) = p*·x + (T₀/q) H_{q,r}(p*) [rows] of the logits x measured from their row's
        largest; p in the logits' dtype, Ω* in float32 at least.
    """
    x = logits.double()
    equation = Equation((x - x.amax(-1, keepdim=True)) / temperature, q, r)
    concave = is_concave(q, r).squeeze(-1)
    if concave.all():
        y = equation.root(*equation.bracket())
    else:
        y = torch.zeros_like(q)
        some = equation.select(concave)
        y[concave] = some.root(*some.bracket())
        y[~concave] = global_maximum(equation.select(~concave))
    solution = equation.at(y)
    p, conjugate = solution.probabilities, solution.objective()
    steep = (equation.delta > 1).squeeze(-1)
    if steep.any():
        solution = from_last_knot(equation.select(steep), y[steep])
        p[steep], conjugate[steep] = solution.probabilities, solution.objective()
    wide = torch.promote_types(logits.dtype, torch.float32)
    return p.to(logits.dtype), (conjugate * temperature).squeeze(-1).to(wide)
