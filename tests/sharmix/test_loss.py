"""The Fenchel–Young loss: its values, targets, shapes and reductions."""

import itertools
import math

import pytest
import torch

import sharmix
from tests.sharmix import reference
from tests.sharmix.accuracy import ORDERS
from tests.sharmix.cases import assert_errors_within, for_every

pytestmark = pytest.mark.usefixtures("each_backend")

ROWS = [[1.5, 0.25, -0.5, 0.0], [0.1, 0.2, 0.3, -4.0], [-1.0, 2.0, 8.0, 0.5]]
Z, Y = torch.tensor(ROWS, dtype=torch.float64), torch.tensor([1, 3, 2])


def test_loss_against_fifty_digits():
    soft = [[0.5, 0.25, 0.25, 0.0], [0.0, 0.0, 1.0, 0.0], [0.125, 0.125, 0.25, 0.5]]
    kinds = {"hard": (Y, torch.eye(4)[Y].tolist()), "soft": (torch.tensor(soft, dtype=torch.float64), soft)}
    errors = {}
    for (q, r), temperature, (kind, (targets, rows)) in itertools.product(ORDERS, [1.0, 0.25], kinds.items()):
        loss = sharmix.fenchel_young_loss(Z, targets, q, r, temperature=temperature, reduction="none")
        exact = [reference.fenchel_young_loss(z, y, q, r, temperature) for z, y in zip(ROWS, rows, strict=True)]
        errors[q, r, temperature, kind] = reference.worst_error(loss.tolist(), exact)
    assert_errors_within(errors, 1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_orders_for_each_row_and_head(smoothing):
    z = torch.stack([Z, Z / 2])
    y = torch.stack([Y, Y])
    q = torch.tensor([1.0, 3.0], dtype=torch.float64).reshape(2, 1, 1)
    r = torch.tensor([[0.5], [1.75], [2.0]], dtype=torch.float64)
    t = torch.tensor([[0.5], [1.0], [2.0]], dtype=torch.float64)
    options = {"label_smoothing": smoothing, "reduction": "none"}
    p, losses = sharmix.sharmix(z, q, r, t), sharmix.fenchel_young_loss(z, y, q, r, t, **options)
    for i, j in itertools.product(range(2), range(3)):
        orders = q[i].item(), r[j].item(), t[j].item()
        torch.testing.assert_close(p[i, j], sharmix.sharmix(z[i, j], *orders))
        torch.testing.assert_close(losses[i, j], sharmix.fenchel_young_loss(z[i, j], y[i, j], *orders, **options))


@for_every(
    name=["softmax", "alpha_relu", "sharmix_fixed"],
    dtype=(torch.int8, torch.int16, torch.int32, torch.uint8, torch.uint16, torch.uint64),
)
def test_labels_of_any_integer_type(name, dtype):
    act = sharmix.build_activation(name)
    assert torch.equal(act.loss(Z, Y.to(dtype)), act.loss(Z, Y))


@for_every(
    "error, named, arguments",
    (
        (ValueError, "average.*mean", {"reduction": "average"}),
        (ValueError, "1.5", {"label_smoothing": 1.5}),
        (ValueError, r"q.*0\.5", {"q": 0.5}),
        (ValueError, r"1\.25", {"r": 1.25, "q": 1.75, "nonconcave": "error"}),
        (TypeError, "weight must be a tensor of one number for each class, got list", {"weight": [1.0] * 4}),
        (ValueError, r"weight=-2\.0 is not allowed; .* >= 0", {"weight": torch.tensor([1.0, 1.0, 1.0, -2.0])}),
        (ValueError, "weight=nan is not allowed", {"weight": torch.full((4,), math.nan)}),
        (ValueError, r"must sum to 1 over the classes, got a sum of 0\.99", {"targets": torch.eye(4)[Y] * 0.99}),
        (TypeError, "class indices of an integer type or probabilities, got torch.bool", {"targets": Y > 0}),
        (TypeError, "probabilities, got torch.complex64", {"targets": torch.eye(4)[Y].to(torch.complex64)}),
    ),
)
def test_a_bad_option_is_named(error, named, arguments):
    with pytest.raises(error, match=f"(?s){named}"):
        sharmix.fenchel_young_loss(**{"logits": Z, "targets": Y} | arguments)


LOSSES = ("fenchel_young_loss", "entmax_loss", "sparsemax_loss", "normmax_loss", "alpha_relu_loss")
CRITERIA = ("SharMiXLoss", "EntmaxLoss", "NormmaxLoss", "SparsemaxLoss", "AlphaReLULoss")
LAYER = Z, torch.zeros(4, 4).double(), None, Y


@for_every(
    "function, arguments",
    [
        *((getattr(sharmix, name), (Z, Y)) for name in LOSSES),
        *((getattr(sharmix, name), ()) for name in CRITERIA),
        (sharmix.SharMiX().loss, (Z, Y)),
        (sharmix.Softmax().loss, (Z, Y)),
        (sharmix.linear_fenchel_young_loss, LAYER),
        (sharmix.Entmax().linear_loss, LAYER),
    ],
)
def test_an_unknown_option_is_named(function, arguments):
    public = r"(fenchel_young_loss|FenchelYoungLoss.__init__|linear_loss)\(\)"
    with pytest.raises(TypeError, match=f"{public} got an unexpected .* 'lable_smoothing'"):
        function(*arguments, lable_smoothing=0.1)
