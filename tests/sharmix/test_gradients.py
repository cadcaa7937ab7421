"""Gradients of map and loss against fifty digits and numerical differences, and what autograd asks of them."""

import itertools

import mpmath
import pytest
import torch
from mpmath import mp, mpf
from torch.autograd import gradcheck, gradgradcheck

import sharmix
from tests.sharmix import reference
from tests.sharmix.accuracy import ORDERS
from tests.sharmix.cases import assert_errors_within, for_every

pytestmark = pytest.mark.usefixtures("each_backend")

Z = [0.6, 0.1, -0.3, -1.9]
WEIGHTS = [1.0, -2.0, 0.5, 3.0]
STEP = mpf(10) ** -15

SPECIAL = [*ORDERS, (1.0, 0.5), (1 + 1e-12, 1.5), (1 + 1e-4, 1 + 1e-4), (1.0001, 1.5)]
SPECIAL += [(2.0, 1.75), (2.5, 2.5), (2.5, 1.75)]
# Rows apart from the kinks, where an entry leaves the support.
ROWS = [[0.6, 0.1, -0.3, -1.9], [0.05, 0.0, -0.1, 0.02], [2.0, -1.0, 0.3, 1.1]]


def leaf(values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def _partial(function, point, i):
    """Central difference at fifty digits, exact to about thirty."""
    with mp.workdps(60):
        ahead, behind = ([*point[:i], point[i] + s, *point[i + 1 :]] for s in (STEP, -STEP))
        return [(a - b) / (2 * STEP) for a, b in zip(function(ahead), function(behind), strict=True)]


def _exact_map(point):
    *z, q, r, temperature = map(mpf, point)
    return reference.sharmix(z, q, r, temperature)


def _exact_loss(target):
    def loss(point):
        *z, q, r, temperature = map(mpf, point)
        return [reference.fenchel_young_loss(z, target, q, r, temperature)]

    return loss


def _relative_error(actual, exact):
    size = max(max(map(abs, exact)), mpf(10) ** -6)
    return reference.worst_error(actual, exact) / float(size)


@pytest.mark.parametrize(
    "orders",
    [SPECIAL[::3], *(pytest.param(SPECIAL[i::3], marks=pytest.mark.medium) for i in (1, 2))],
    ids=["first third", "second third", "last third"],
)
def test_jacobian_of_the_map_against_fifty_digits(orders):
    errors = {}
    for q, r in orders:
        point = [*Z, q, r, 0.7]
        inputs = tuple(leaf(v) for v in (Z, q, r, 0.7))
        jacobian = torch.autograd.functional.jacobian(sharmix.sharmix, inputs)
        columns = torch.cat([jacobian[0], *(j[:, None] for j in jacobian[1:])], dim=1)
        for i in range(len(point)):
            errors[q, r, i] = _relative_error(columns[:, i].tolist(), _partial(_exact_map, point, i))
    assert_errors_within(errors, 1e-8)


@pytest.mark.parametrize("target", [[0, 1, 0, 0], [0.5, 0.25, 0.125, 0.125]], ids=["hard", "soft"])
def test_gradient_of_the_loss_against_fifty_digits(target):
    of_values, of_gradients = {}, {}
    for q, r in SPECIAL:
        point = [*Z, q, r, 0.7]
        inputs = [leaf(v) for v in (Z, q, r, 0.7)]
        y = torch.tensor(target, dtype=torch.float64)
        loss = sharmix.fenchel_young_loss(inputs[0], y, *inputs[1:])
        gradients = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, inputs)])
        exact = [_partial(_exact_loss(target), point, i)[0] for i in range(len(point))]
        of_values[q, r] = reference.worst_error([loss.item()], _exact_loss(target)(point))
        of_gradients[q, r] = _relative_error(gradients.tolist(), exact)
    assert_errors_within(of_values, 1e-12)
    assert_errors_within(of_gradients, 1e-8)


@pytest.mark.medium
def test_hessian_of_the_map_against_fifty_digits():
    """Second order where numerical differences of float64 cannot go: at q = 1 itself."""

    def weighted(point):
        return sharmix.sharmix(point[:4], *point[4:]) @ torch.tensor(WEIGHTS, dtype=torch.float64)

    def exact_weighted(point):
        return [mpmath.fdot(WEIGHTS, _exact_map(point))]

    errors = {}
    for q, r in ((1.0, 0.5), (1.0, 1.0), (1.0, 1.5), (1.0001, 1.5), (1.25, 1.5), (2.0, 1.75)):
        point = [*Z, q, r, 0.7]
        hessian = torch.autograd.functional.hessian(weighted, leaf(point))
        scale = max(1.0, hessian.abs().max().item())
        for i, j in itertools.combinations_with_replacement(range(7), 2):
            exact = float(_partial(lambda v, j=j: _partial(exact_weighted, v, j), point, i)[0])
            errors[q, r, i, j] = (hessian[[i, j], [j, i]] - exact).abs().max().item() / scale
    assert_errors_within(errors, 1e-7)


# Numerical differences need room on both sides of the point: q stays off its bound.
INTERIOR = [(1.0001, 1.0001), (1.25, 1.5), (1.5, 1.0), (1.5, 1.5), (2.0, 2.0), (2.5, 1.75)]
PAIR = [[0.6, 0.1, -1.9], [0.05, 0.02, -0.1]]
CLASSES = torch.tensor([1, 0])
SOFT = torch.tensor([[0.5, 0.25, 0.25], [0.0, 0.375, 0.625]], dtype=torch.float64)


def loss_of_rows(targets, **options):
    return lambda z, *orders: sharmix.fenchel_young_loss(z, targets, *orders, **options, reduction="none")


FUNCTIONS = {
    "map": sharmix.sharmix,
    "loss": loss_of_rows(CLASSES),
    "smoothed loss": loss_of_rows(CLASSES, label_smoothing=0.1),
    "soft loss": loss_of_rows(SOFT),
}


POINTS = [(q, r, 0.8) for q, r in INTERIOR] + [([[1.0001], [2.5]], [[1.5], [1.7]], [[0.5], [2.0]])]


@pytest.mark.medium
@pytest.mark.parametrize("name", FUNCTIONS)
@for_every(orders=POINTS)
def test_first_and_second_order_by_logits_orders_and_temperature(name, orders):
    inputs = leaf(PAIR), *map(leaf, orders)
    assert gradcheck(FUNCTIONS[name], inputs)
    assert gradgradcheck(FUNCTIONS[name], inputs)


def _saved_sizes(function, *inputs):
    """Element counts of the distinct tensors that the forward pass keeps for the backward."""
    saved = {}

    def keep(tensor):
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = function(*inputs)
    output.sum().backward()
    assert all(v.grad is not None for v in inputs if v.requires_grad)
    return [nbytes // inputs[0].element_size() for nbytes in saved.values()]


@for_every(
    of={
        "map": (sharmix.sharmix, (1.25, 1.5, 1.0)),
        "loss": (lambda z, *orders: sharmix.fenchel_young_loss(z, torch.arange(64), *orders), (1.25, 1.5, 1.0)),
        "entmax": (lambda z, order: sharmix.entmax(z, alpha=order), (1.25,)),
        "alpha_relu": (sharmix.alpha_relu, ()),
        "alpha_relu_loss": (lambda z: sharmix.alpha_relu_loss(z, torch.arange(64)), ()),
    },
    are_learned=[False, True],
)
def test_at_most_one_tensor_of_the_logits_size_is_kept_for_the_backward(of, are_learned):
    function, orders = of
    z = torch.randn(64, 1000, dtype=torch.float64, requires_grad=True)
    sizes = _saved_sizes(function, z, *(leaf(order) if are_learned else torch.tensor(order) for order in orders))
    assert sum(size >= z.numel() // 2 for size in sizes) <= 1
    assert max(sizes) <= z.numel()


def _learned(objective, name="sharmix_learned"):
    orders = {"alpha": 1.4} if name == "entmax_learned" else {"q": 1.25, "r": 1.5}
    return sharmix.build_activation(name, objective=objective, **orders).double()


@pytest.mark.parametrize("name", ["sharmix_learned", "entmax_learned"])
@pytest.mark.parametrize("objective", ["brier", "log"])  # of the entropy: see above
def test_the_objective_moves_the_orders_and_never_the_logits(name, objective):
    act, plain = _learned(objective, name), _learned("fenchel_young", name)
    # The second label has p = 0: no finite log score, so that row is left out of its mean.
    z = leaf([[0.6, 0.1, -0.3, -1.9], [3.0, -4.0, 0.0, 0.1], [2.0, -1.0, 0.3, 1.1]])
    y = torch.tensor([1, 1, 3])
    parameters = act.entropy_parameters()
    loss = act.loss(z, y)
    of_logits, *of_orders = torch.autograd.grad(loss, [z, *parameters])

    p = act(z)
    assert p[1, 1] == 0
    torch.testing.assert_close(loss, plain.loss(z, y))
    one_hot = torch.nn.functional.one_hot(y, 4)
    torch.testing.assert_close(of_logits, ((p - one_hot) / 3).detach())
    true = p.gather(1, y[:, None]).squeeze(1)
    scores = {"brier": (p - one_hot).square().sum(-1).mean(), "log": -true[true > 0].log().mean()}
    torch.testing.assert_close(of_orders, torch.autograd.grad(scores[objective], parameters))


def test_the_fenchel_young_loss_pushes_both_orders_up_whatever_the_labels():
    z = torch.tensor(ROWS, dtype=torch.float64)
    for labels in itertools.product(range(4), repeat=3):
        act = _learned("fenchel_young")
        act.loss(z, torch.tensor(labels)).backward()
        assert all(parameter.grad < 0 for parameter in act.entropy_parameters())


@for_every(
    "dtype, allowed, last",
    [(torch.float32, 1e-5, last) for last in (1e-4, 1e-6)]
    + [(torch.float64, 1e-12, last) for last in (1e-4, 1e-8, 1e-12, 1e-15)],
)
def test_the_jacobian_keeps_its_digits_where_a_class_has_just_joined_the_support(dtype, allowed, last):
    # entmax of order 3 and two logits: p₂ = (1 − 2(z₁ − z₂))/2
    z = torch.tensor([0.0, -(1 - 2 * last) / 2], dtype=dtype)
    assert sharmix.entmax(z, alpha=3.0)[1] > 0
    exact = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=dtype)
    jacobian = torch.func.jacrev(lambda logits: sharmix.entmax(logits, alpha=3.0))(z)
    torch.testing.assert_close(jacobian, exact, rtol=0, atol=allowed)
