"""The yardstick is itself measured: against the argmax by brute force, and against known limits."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf
from scipy.optimize import minimize

from tests.sharmix import reference
from tests.sharmix.cases import every_case


def _objective(p, z, q, r, temperature=1.0):
    p = np.asarray(p)
    positive = p[p > 0]
    renyi = -(positive * np.log(positive)).sum() if q == 1 else math.log((positive**q).sum()) / (1 - q)
    entropy = renyi if r == 1 else math.expm1((1 - r) * renyi) / (1 - r)
    return float(p @ np.asarray(z) + temperature / q * entropy)


def _grid(size, steps):
    """Every point of the simplex whose entries are multiples of 1/steps."""
    if size == 1:
        return np.full((1, 1), steps)
    blocks = []
    for first in range(steps + 1):
        rest = _grid(size - 1, steps - first)
        blocks.append(np.hstack([np.full((len(rest), 1), first), rest]))
    return np.vstack(blocks)


def _climb(z, q, r, starts):
    """Best of many local searches over the simplex, by squares of free numbers."""

    def loss(u):
        return -_objective(u**2 / (u**2).sum(), z, q, r)

    results = [minimize(loss, np.sqrt(start), method="BFGS").x for start in starts]
    best = min(results, key=loss)
    return best**2 / (best**2).sum()


@pytest.mark.medium
def test_no_grid_point_of_the_simplex_beats_the_reference():
    z, grid = [0.7, 0.4, -0.9], _grid(3, 120) / 120
    all_orders = [(1, 1), (1, 2), (1.25, 1.5), (1.5, 1.5), (2, 2), (3, 2), (1.5, 1.25), (1.75, 1.25), (3, 0.5)]
    with every_case() as case:
        for (q, r), temperature in itertools.product(all_orders, [0.5, 2.0]):
            with case(q=q, r=r, temperature=temperature):
                p = np.array(reference.sharmix(z, q, r, temperature), dtype=float)
                values = np.array([_objective(point, z, q, r, temperature) for point in grid])
                assert values.max() <= _objective(p, z, q, r, temperature) + 1e-12
                assert np.abs(grid[values.argmax()] - p).max() < 0.02


@pytest.mark.medium
def test_reference_is_the_global_maximiser_on_both_sides_of_the_jump():
    with every_case() as case:
        for a in (1.30, 1.34, 1.36, 1.45):
            with case(a=a):
                z, q, r = np.array([a] + [0.0] * 9), 1.75, 1.25
                p = np.array(reference.sharmix(z.tolist(), q, r), dtype=float)
                starts = np.random.default_rng(0).dirichlet(np.full(10, 0.3), size=20)
                starts = np.vstack([starts, np.full(10, 0.1), 0.99 * np.eye(10)[0] + 0.001])
                climbed = _climb(z, q, r, starts)
                assert _objective(climbed, z, q, r) <= _objective(p, z, q, r) + 1e-12
                assert np.abs(climbed - p).max() < 1e-3


def test_fifty_digits_of_softmax_sparsemax_and_entmax():
    z = [mpf(v) for v in ("0.5", "0.25", "-1.5")]
    with mp.workdps(50):
        total = mpmath.fsum(map(mp.exp, z))
        softmax = [mp.exp(v) / total for v in z]
        sparsemax = [mpf("0.625"), mpf("0.375"), mpf(0)]
        # 1.5-entmax on two classes a distance d apart: p = u², u1 - u2 = d/2, u1² + u2² = 1.
        half = mpf("0.25") / 4
        root = mp.sqrt(mpf("0.5") - half**2)
        entmax = [(root + half) ** 2, (root - half) ** 2, mpf(0)]
        for exact, orders in ((softmax, 1), (sparsemax, 2), (entmax, 1.5)):
            p = reference.sharmix(z, orders, orders)
            assert max(abs(a - b) for a, b in zip(p, exact, strict=True)) < mpf(10) ** -44


@pytest.mark.parametrize("temperature", [0.3, 1, 4])
def test_at_first_order_one_the_map_is_softmax_at_its_own_temperature(temperature):
    z, r = [1.0, 0.5, -2.0, 0.25], 1.75
    p = reference.sharmix(z, 1, r, temperature)
    with mp.workdps(50):
        own = temperature * mp.exp((1 - r) * reference.entropy(p, 1, 1))
        total = mpmath.fsum(mp.exp(v / own) for v in z)
        assert max(abs(mp.exp(v / own) / total - a) for v, a in zip(z, p, strict=True)) < 1e-43


@pytest.mark.parametrize("gap", [1e-12, 1e-20])
def test_the_limits_are_approached_from_both_sides(gap):
    z = [1.0, 0.5, -2.0, 0.25]
    with mp.workdps(60):
        for q, r, dq, dr in ((1, 1.5, 1, 0), (1.5, 1, 0, 1), (1.5, 1.5, 0, 1)):
            at = reference.sharmix(z, q, r)
            for side in (-1, 1):
                near = reference.sharmix(z, q + side * dq * mpf(gap), r + side * dr * mpf(gap))
                assert 0 < max(abs(a - b) for a, b in zip(at, near, strict=True)) < gap


@pytest.mark.parametrize(
    ("q", "r", "expected"),
    [(1, 1, math.log(4)), (2, 2, 0.75), (2, 1, math.log(4)), (3, 0.5, 2.0), (1, 2, 0.75)],
)
def test_entropy_of_four_equal_classes(q, r, expected):
    assert float(reference.entropy([0.25] * 4, q, r)) == pytest.approx(expected, rel=1e-15)


def test_fenchel_young_loss_at_softmax_is_the_cross_entropy():
    z = [0.5, 0.25, -1.5]
    expected = math.log(sum(map(math.exp, z))) - z[1]
    assert float(reference.fenchel_young_loss(z, [0, 1, 0], 1, 1)) == pytest.approx(expected, rel=1e-14)


def test_the_worst_error_keeps_fifty_digits_and_notices_a_nan_anywhere():
    exact = reference.sharmix([0.5, 0.25, -1.5], 1, 1)
    nearest = [float(p) for p in exact]
    with mp.workdps(50):
        expected = max(float(abs(mpf(a) - b)) for a, b in zip(nearest, exact, strict=True))
    assert 0 < expected < 1e-16
    assert reference.worst_error(nearest, exact) == pytest.approx(expected, rel=1e-12)
    for place in range(3):
        spoilt = [*nearest[:place], math.nan, *nearest[place + 1 :]]
        assert math.isnan(reference.worst_error(spoilt, exact))
