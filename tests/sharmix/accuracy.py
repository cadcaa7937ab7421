"""How exact the map is: worst error per dtype against fifty digits, and beside the entmax package.

``python -m tests.sharmix.accuracy`` prints both. ``test_map.py`` asserts a quick part of the cases.
"""

import functools
import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import mpmath
import numpy as np
import torch

import sharmix
from tests.sharmix import reference

GOALS = {torch.float64: 1e-12, torch.float32: 1e-6}
HALF_PRECISION = (torch.bfloat16, torch.float16)

FIRST_ORDERS = (1.0, 1 + 1e-12, 1 + 1e-9, 1.0001, 1.01, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0)
SECOND_ORDERS = (0.5, 1 - 1e-9, 1.0, 1 + 1e-9, 1.25, 1.5, 2.0, 3.0)
OFFSETS_FROM_FIRST = (0.0, 1e-9, -1e-9)
ORDERS = [(1.0, 1.0), (1.0, 1.5), (1 + 1e-9, 1.5), (1.25, 1.5), (1.5, 1.5), (1.5, 1.0), (1.75, 1.25)]
ORDERS += [(2.0, 2.0), (3.0, 0.5), (3.0, 3.0)]  # where a test has time for few
SCALES = (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1e4)


@dataclass(frozen=True)
class Case:
    """One row of normal logits, drawn in float64 and rounded to the dtype under test."""

    q: float
    r: float
    size: int
    scale: float
    seed: int

    def __str__(self) -> str:
        return f"q={self.q!r} r={self.r!r} N={self.size} scale={self.scale:g} seed={self.seed}"

    def logits(self, dtype: torch.dtype) -> torch.Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        draw = torch.randn(self.size, generator=generator, dtype=torch.float64)
        return (self.scale * draw).to(dtype)

    @functools.cache  # noqa: B019 - the cases are constants of the modules
    def exact(self, dtype: torch.dtype) -> list[reference.Real]:
        return reference.sharmix(self.logits(dtype).double().tolist(), self.q, self.r)


def sample(size: int, count: int, seed: int = 0) -> list[Case]:
    """``count`` cases with ``size`` logits, spread over all orders and scales."""
    orders = [
        *itertools.product(FIRST_ORDERS, SECOND_ORDERS),
        *((q, q + offset) for q in FIRST_ORDERS for offset in OFFSETS_FROM_FIRST),
    ]
    draw = random.Random(seed + size)
    return [Case(*draw.choice(orders), size, draw.choice(SCALES), i) for i in range(count)]


def absolute_error(case: Case, dtype: torch.dtype, device: str = "cpu") -> float:
    """Largest absolute error of the map on the logits of the case, as rounded to the dtype."""
    p = sharmix.sharmix(case.logits(dtype).to(device), q=case.q, r=case.r)
    return reference.worst_error(p.double().tolist(), case.exact(dtype))


def rounding_error(case: Case, dtype: torch.dtype, device: str = "cpu") -> float:
    """Largest error in units of what the format's own rounding, after float32, may cost."""
    p = sharmix.sharmix(case.logits(dtype).to(device), q=case.q, r=case.r)
    exact = case.exact(dtype)
    allowed = torch.finfo(dtype).eps / 2 * np.array(exact, dtype=np.float64) + GOALS[torch.float32]
    return float((np.abs(reference.differences(p.double().tolist(), exact)) / allowed).max())


def error_of_row(row: Sequence[float], q: float, r: float) -> float:
    """Largest absolute error of the map of one row of float64 logits."""
    p = sharmix.sharmix(torch.tensor(row, dtype=torch.float64), q=q, r=r)
    return reference.worst_error(p.tolist(), reference.sharmix(row, q, r))


def errors_of_small_classes(q: float, r: float) -> dict[tuple[float, ...], float]:
    """Largest absolute error where the last class has just joined the support, by the weights of the classes."""
    errors = {}
    for others in ([1.0], [0.6, 0.4], [0.5, 0.3, 0.2], [0.25] * 4):
        weights = [(*others, last) for last in (0.0, 1e-18, 1e-16, 1e-14, 1e-12, 1e-9, 1e-6, 1e-3)]
        z = [[float(v) for v in reference.logits(row, q, r)] for row in weights]
        p = sharmix.sharmix(torch.tensor(z, dtype=torch.float64), q=q, r=r)
        for row, found in zip(weights, p.tolist(), strict=True):
            errors[row] = reference.worst_error(found, [mpmath.mpf(v) / sum(row) for v in row])
    return errors


def oracle_errors(dtype: torch.dtype, offset: float, size: int = 100) -> Iterator[tuple[str, float, float]]:
    """Name, the package's worst error and ours, on the same logits plus an offset."""
    import entmax  # else a machine without it could not run the other cases

    functions = {
        "sparsemax": (2.0, entmax.sparsemax, sharmix.sparsemax),
        "entmax15": (1.5, entmax.entmax15, sharmix.entmax),
        **{
            f"entmax_bisect({alpha})": (
                alpha,
                lambda z, alpha=alpha: entmax.entmax_bisect(z, alpha=alpha),
                lambda z, alpha=alpha: sharmix.entmax(z, alpha=alpha),
            )
            for alpha in (1.1, 1.25, 1.5, 2.0)
        },
    }
    generator = torch.Generator().manual_seed(0)
    z = (2 * torch.randn(8, size, generator=generator, dtype=torch.float64) + offset).to(dtype)
    for name, (alpha, theirs, ours) in functions.items():
        exact = [reference.sharmix(row, alpha, alpha) for row in z.double().tolist()]
        worst = (max(map(reference.worst_error, function(z).double().tolist(), exact)) for function in (theirs, ours))
        yield name, *worst


def main() -> None:
    """Print the worst error per dtype, then the errors beside the entmax package."""
    cases = [case for size in (1, 2, 3, 10, 100) for case in sample(size, 100)] + sample(1_000, 10) + sample(32_000, 2)
    kinds = {dtype: (absolute_error, goal, "") for dtype, goal in GOALS.items()}
    kinds |= dict.fromkeys(HALF_PRECISION, (rounding_error, 1.0, " × rounding"))
    for dtype, (measure, goal, unit) in kinds.items():
        errors = {case: measure(case, dtype) for case in cases}
        worst = max(errors, key=errors.__getitem__)
        print(f"{dtype}: {errors[worst]:.1e}{unit}, goal {goal:g}{unit}, at {worst}; {len(cases)} cases", flush=True)
    for dtype, offset in itertools.product(GOALS, (0.0, 1e6)):
        for name, theirs, ours in oracle_errors(dtype, offset):
            print(f"{dtype}, normal + {offset:g}, {name}: entmax {theirs:.1e}, sharmix {ours:.1e}")


if __name__ == "__main__":
    main()
