"""Gradients of map and loss against numerical differences, to second order."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import sharmix
from tests.sharmix.cases import every_case

pytestmark = pytest.mark.usefixtures("each_backend")

# Numerical differences need room on both sides of the point: q stays off its bound.
INTERIOR = [(1.0001, 1.0001), (1.25, 1.5), (1.5, 1.0), (1.5, 1.5), (2.0, 2.0), (2.5, 1.75)]
PAIR = [[0.6, 0.1, -1.9], [0.05, 0.02, -0.1]]
CLASSES = torch.tensor([1, 0])
SOFT = torch.tensor([[0.5, 0.25, 0.25], [0.0, 0.375, 0.625]], dtype=torch.float64)


def loss(targets, **options):
    return lambda z, *orders: sharmix.fenchel_young_loss(z, targets, *orders, **options, reduction="none")


FUNCTIONS = {
    "map": sharmix.sharmix,
    "loss": loss(CLASSES),
    "smoothed loss": loss(CLASSES, label_smoothing=0.1),
    "soft loss": loss(SOFT),
}


def leaf(values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


@pytest.mark.medium
@pytest.mark.parametrize("name", FUNCTIONS)
def test_first_and_second_order_by_logits_orders_and_temperature(name):
    points = [(leaf(PAIR), leaf(q), leaf(r), leaf(0.8)) for q, r in INTERIOR]
    an_order_for_each_row = (leaf(PAIR), leaf([[1.0001], [2.5]]), leaf([[1.5], [1.7]]), leaf([[0.5], [2.0]]))
    with every_case() as case:
        for inputs in (*points, an_order_for_each_row):
            with case(orders=[order.tolist() for order in inputs[1:]]):
                assert gradcheck(FUNCTIONS[name], inputs)
                assert gradgradcheck(FUNCTIONS[name], inputs)


def test_first_and_second_order_at_first_order_one():
    with every_case() as case:
        for r in (1.0, 1.5, 0.5):
            with case(r=r):
                inputs = (leaf(PAIR), leaf(r), leaf(0.8))
                assert gradcheck(lambda z, *others: sharmix.sharmix(z, 1.0, *others), inputs)
                assert gradgradcheck(lambda z, *others: sharmix.sharmix(z, 1.0, *others), inputs)
