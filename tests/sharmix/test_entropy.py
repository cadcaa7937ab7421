"""The Sharma–Mittal entropy: its accuracy, and its derivatives to second order. It is plain torch on every backend."""

import itertools

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import sharmix
from tests.sharmix import reference
from tests.sharmix.accuracy import ORDERS
from tests.sharmix.cases import assert_errors_within

NEAR_LIMITS = [(1.5, 1 + 1e-9), (1 + 1e-12, 1 - 1e-12)]
DISTRIBUTIONS = [[1.0], [0.0, 1.0], [0.5, 0.25, 0.25], [0.875, 0.125, 0.0], [1 / 64] * 64]


def test_entropy_against_fifty_digits():
    errors = {}
    for p, (q, r) in itertools.product(DISTRIBUTIONS, ORDERS + NEAR_LIMITS):
        found = sharmix.sharma_mittal_entropy(torch.tensor(p, dtype=torch.float64), q, r).item()
        exact = float(reference.entropy(p, q, r))
        errors[q, r, *p] = abs(found - exact) / max(1e-12 * exact, 1e-14)
    assert_errors_within(errors, 1)


@pytest.mark.medium
@pytest.mark.parametrize(("q", "r"), [(1.0, 1.0), (1.25, 1.5), (2.0, 2.0), (1.0001, 1.0), (2.5, 2)])
def test_first_and_second_order_on_the_simplex(q, r):
    z, *orders = (
        torch.tensor(value, dtype=torch.float64, requires_grad=True)
        for value in ([[0.5, 0.3, 0.2], [4.0, 0.1, -0.5]], q, r)
    )
    free = (z, *orders) if q > 1 else (z,)

    def entropy(z, q=orders[0], r=orders[1]):
        return sharmix.sharma_mittal_entropy(torch.softmax(z, -1), q, r)

    assert gradcheck(entropy, free)
    assert gradgradcheck(entropy, free)
