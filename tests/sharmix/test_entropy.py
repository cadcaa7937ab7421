"""The Sharma–Mittal entropy: its accuracy. Its gradients are tested in `test_gradients.py`."""

import itertools

import torch

import sharmix
from tests.sharmix import reference
from tests.sharmix.cases import assert_errors_within

ORDERS = [
    (1, 1),
    (1, 2),
    (2, 1),
    (1.5, 1.5),
    (1.5, 1 + 1e-9),
    (1 + 1e-9, 1.5),
    (1 + 1e-12, 1 - 1e-12),
    (1.75, 1.25),
    (3, 0.5),
]
DISTRIBUTIONS = [[1.0], [0.0, 1.0], [0.5, 0.25, 0.25], [0.875, 0.125, 0.0], [1 / 64] * 64]


def test_entropy_against_fifty_digits():
    errors = {}
    for p, (q, r) in itertools.product(DISTRIBUTIONS, ORDERS):
        found = sharmix.sharma_mittal_entropy(torch.tensor(p, dtype=torch.float64), q, r).item()
        exact = float(reference.entropy(p, q, r))
        errors[q, r, *p] = abs(found - exact) / max(1e-12 * exact, 1e-14)
    assert_errors_within(errors, 1)
