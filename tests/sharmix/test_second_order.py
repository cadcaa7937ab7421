"""Gradients of map and loss against numerical differences, to second order."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import sharmix
from tests.sharmix.cases import every_case

# Numerical differences need room on both sides of the point: q stays off its bound.
INTERIOR = [(1.0001, 1.0001), (1.25, 1.5), (1.5, 1.0), (1.5, 1.5), (2.0, 2.0), (2.5, 1.75)]
PAIR = [[0.6, 0.1, -1.9], [0.05, 0.02, -0.1]]


def leaf(values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def assert_derivatives(function, inputs):
    """First and second order, against numerical differences."""
    assert gradcheck(function, inputs)
    assert gradgradcheck(function, inputs)


@pytest.mark.medium
@pytest.mark.usefixtures("each_backend")
def test_first_and_second_order_of_the_map():
    with every_case() as case:
        for q, r in INTERIOR:
            with case(q=q, r=r):
                assert_derivatives(sharmix.sharmix, (leaf(PAIR), leaf(q), leaf(r), leaf(0.8)))


@pytest.mark.usefixtures("each_backend")
def test_first_and_second_order_at_first_order_one():
    def at_one(z, r, temperature):
        return sharmix.sharmix(z, 1.0, r, temperature)

    with every_case() as case:
        for r in (1.0, 1.5, 0.5):
            with case(r=r):
                assert_derivatives(at_one, (leaf(PAIR), leaf(r), leaf(0.8)))


def check_loss(y):
    def loss(z, q, r, temperature):
        return sharmix.fenchel_young_loss(z, y, q, r, temperature, reduction="none")

    with every_case() as case:
        for q, r in INTERIOR:
            with case(q=q, r=r):
                assert_derivatives(loss, (leaf(PAIR), leaf(q), leaf(r), leaf(0.8)))


@pytest.mark.medium
@pytest.mark.usefixtures("each_backend")
def test_first_and_second_order_of_the_loss():
    check_loss(torch.tensor([1, 0]))


@pytest.mark.medium
@pytest.mark.usefixtures("each_solver")
def test_first_and_second_order_of_the_loss_with_soft_targets():
    check_loss(torch.tensor([[0.5, 0.25, 0.25], [0.0, 0.375, 0.625]], dtype=torch.float64))


def _each_row_its_own():
    return leaf(PAIR), leaf([[1.0001], [2.5]]), leaf([[1.5], [1.7]]), leaf([[0.5], [2.0]])


@pytest.mark.usefixtures("each_solver")
def test_orders_of_their_own_for_each_row_of_the_map():
    assert_derivatives(sharmix.sharmix, _each_row_its_own())


@pytest.mark.medium
@pytest.mark.usefixtures("each_solver")
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_orders_of_their_own_for_each_row_of_the_loss(smoothing):
    def loss(z, q, r, temperature):
        y = torch.tensor([1, 0])
        return sharmix.fenchel_young_loss(z, y, q, r, temperature, label_smoothing=smoothing, reduction="none")

    assert_derivatives(loss, _each_row_its_own())


@pytest.mark.usefixtures("each_backend")
def test_gradients_along_another_dimension():
    def first(z, q):
        return sharmix.sharmix(z, q, 1.5, dim=0)

    z = leaf(list(zip(*PAIR, strict=True)))
    assert gradcheck(first, (z, leaf([[1.2, 1.9]])))
