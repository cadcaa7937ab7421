"""The map for q > 2, where a class joins the support with infinite slope: plain torch solves it on every backend."""

import time

import pytest
import torch

import sharmix
from tests.sharmix import accuracy, reference
from tests.sharmix.cases import assert_errors_within


@pytest.mark.medium
def test_outside_the_concave_region_g_may_be_positive_below_the_root():
    errors = {}
    for q, r, gap in (
        (3.0, 0.5, 0.5675),
        (3.0, 1.0, 0.5275),
        (3.0, 1.5, 0.5),
        (2.5, 0.5, 0.7275),
        (4.0, 1.0, 0.3),
        (6.0, 1.5, 0.2),
    ):
        for z in ([0.0, -gap], [0.0, -gap, -gap], [0.0, -gap, -gap - 0.01, -9.0]):
            errors[q, r, *z] = accuracy.error_of_row(z, q, r)
    assert_errors_within(errors, 1e-12)


def test_maxima_on_both_sides_of_a_knot_are_told_apart():
    errors = {
        (q, r, *z): accuracy.error_of_row(z, q, r)
        for z, q, r in (
            ([0.0, -0.030285197876632804, -0.20253621227597535], 4.762888755458619, 1.5292010207346218),
            ([1 / 3 + 6.5e-14] + [0.0] * 7, 4.0, 1.704022838950601),
            ([0.5000000000002386, 0.0, 1e-23, 1e-31], 3.0, 1.60747),
            ([1.49, -0.984, -2.87, 1.05], 3.274, 1.6426),
            ([0.0199, -0.2629], 4.537, 1.71835),
        )
    }
    assert_errors_within(errors, 1e-12)


def test_many_nearly_equal_logits_at_the_edge_of_the_support_are_solved_quickly():
    z = -0.5 + torch.randn(1, 32_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 1e-10
    z[0, 0] = 0
    start = time.process_time()
    p = sharmix.sharmix(z, q=3.0, r=3.0)
    assert time.process_time() - start < 5  # one knot after the other takes 20 seconds
    assert p.sum().item() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("dtype", accuracy.GOALS, ids=str)
def test_steep_rows_are_solved_to_the_end(dtype):
    errors = {}
    for row, q, r in (
        ([0.22244947, -0.27670220], 3.0, 3.0),
        ([1.040174126625061, 1.5400031805038452], 3.0, 2.0),
        ([0.499995, 0.0], 3.0, 3.0),
    ):
        z = torch.tensor(row, dtype=dtype)
        exact = reference.sharmix(z.tolist(), q, r)
        errors[q, r, *row] = reference.worst_error(sharmix.sharmix(z, q, r).tolist(), exact)
    assert_errors_within(errors, accuracy.GOALS[dtype])
