"""A device that has no float64, such as the GPU of a Mac (`mps`): plain torch solves in float32 there.

No test runs on a Mac. A mode that refuses every float64 tensor stands for it, and the library is told that the CPU
has no float64.
"""

import contextlib
import copy
import functools
import itertools

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import sharmix
from sharmix import _private_torch
from sharmix._operators import orders
from sharmix.conformal import SupportPredictor, support_scores
from tests.sharmix import doors
from tests.sharmix.cases import assert_errors_within, for_every

GOAL = 2e-6  # relative to the largest number of a row, or to 1
PLAIN, OPERATORS = "plain", "by the operators"
CONCAVE = [(1.0, 1.0), (1 + 1e-9, 1.5), (1.01, 1.01), (1.1, 1.9), (1.25, 1.2), (1.25, 1.5), (1.5, 1.5), (2.0, 2.0)]
BORDER = [(1.25, 1.2), (1.5, 2 - 1 / 1.5), (2.0, 1.5)]
LARGE_R = [(1.5, 4.0), (2.0, 12.0), (1.0, 12.0)]
OUTSIDE = [(1.75, 1.25), (1.5, 1.0), (2.0, 1.0)]
LARGE_Q = [(2.5, 2.5), (3.0, 3.0), (12.0, 12.0)]


class RefusesFloat64(TorchDispatchMode):
    """Every operator whose result is float64 raises, but where numbers are allowed and it is a tensor of no dimension.

    The operators of `sharmix` take numbers as such tensors, which stay on the CPU.
    """

    def __init__(self, allows_numbers):
        super().__init__()
        self.allows_numbers = allows_numbers

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for one in tree_leaves(result):
            if isinstance(one, torch.Tensor) and one.dtype == torch.float64 and (one.dim() or not self.allows_numbers):
                raise TypeError(f"{function} gives a float64 tensor of shape {tuple(one.shape)}")
        return result


@contextlib.contextmanager
def without_float64(way=PLAIN):
    """As on a device without float64; `PLAIN` hides the mode, so that the library takes the way of plain callers."""
    with pytest.MonkeyPatch.context() as patch, sharmix.plain_torch(), RefusesFloat64(way == OPERATORS):
        patch.setattr(orders, "_WITHOUT_FLOAT64", ("cpu",))
        if way == PLAIN:
            patch.setattr(_private_torch, "is_plain_call", lambda: True)
        yield


def solved(way, function, *inputs):
    """What the function returns on a device without float64."""
    with without_float64(way):
        return function(*inputs)


@pytest.fixture(params=[PLAIN, pytest.param(OPERATORS, marks=pytest.mark.medium)])
def way(request):
    return request.param


def rows(*shape, scale=1.0):
    return (scale * doors.logits(*shape)).float()


def error(found, exact):
    """The largest error, relative to the largest number of its row where that is above 1."""
    exact = exact.double()
    largest = exact.abs().amax(-1, keepdim=True) if exact.dim() else exact.abs()
    return ((found.double() - exact).abs() / largest.clamp_min(1)).max().item()


def check(found, exact, goal=GOAL):
    assert len(found) == len(exact)
    for one, other in zip(found, exact, strict=True):
        assert one.dtype == torch.float32
        assert error(one, other) <= goal


def module_results(module, z, targets=None):
    """The output of an activation or criterion, and gradients by logits and parameters."""
    z = z.clone().requires_grad_()
    output = module(z) if targets is None else module(z, targets)
    value = output.square().sum() if targets is None else output.sum()
    learned = [z, *module.parameters()]
    gradients = torch.autograd.grad(value, learned, allow_unused=True, materialize_grads=True)
    return [output.detach(), *gradients]


def test_the_mode_refuses_float64_and_leaves_the_plain_way():
    z = rows(2, 3).requires_grad_()
    with pytest.raises(TypeError, match="float64"), without_float64():
        z.double()
    is_plain = [type(solved(way, sharmix.sharmix, z).grad_fn).__name__ == "MapBackward" for way in (PLAIN, OPERATORS)]
    assert is_plain == [True, False]


@for_every(function=doors.EVERYTHING, shape=[(3, 4), (2, 2, 40)])
def test_every_map_and_loss(way, function, shape):
    z = rows(*shape)
    exact = doors.value_and_gradient(function, z.double())
    check(solved(way, doors.value_and_gradient, function, z), exact)


@for_every(name=doors.NAMES)
def test_every_activation(way, name):
    z, act = rows(4, 7), doors.build(name, torch.float32)
    check(solved(way, module_results, act, z), module_results(copy.deepcopy(act).double(), z.double()))


Z, WEIGHT = rows(6, 5), rows(5).exp()
CRITERIA = {name: lambda name=name: sharmix.FenchelYoungLoss(doors.build(name, torch.float32)) for name in doors.NAMES}
for objective in ("brier", "log"):
    CRITERIA[objective] = functools.partial(sharmix.SharMiXLoss, 1.1, 1.2, learned=True, objective=objective)
for kind, options in {
    "weights": {"weight": WEIGHT},
    "smoothing": {"label_smoothing": 0.1},
    "both": {"weight": WEIGHT, "label_smoothing": 0.1, "reduction": "none"},
}.items():
    for loss in (sharmix.SharMiXLoss, sharmix.EntmaxLoss, sharmix.NormmaxLoss):
        CRITERIA[f"{loss.__name__}, {kind}"] = functools.partial(loss, learned=True, **options)
    CRITERIA[f"sparsemax, {kind}"] = functools.partial(sharmix.SparsemaxLoss, **options)
    CRITERIA[f"alpha-ReLU, {kind}"] = functools.partial(sharmix.AlphaReLULoss, tau=0.3, **options)


@pytest.mark.medium
@for_every(build=CRITERIA, soft=(False, True))
def test_every_criterion(way, build, soft):
    criterion, targets = build(), doors.soft_targets(Z) if soft else doors.labels(Z)
    wide = copy.deepcopy(criterion).double()
    exact = module_results(wide, Z.double(), targets.double() if soft else targets)
    check(solved(way, module_results, criterion, Z, targets), exact)


def test_alpha_relu_finds_its_threshold(way):
    z = rows(6, 5)
    act, wide = sharmix.AlphaReLU(), sharmix.AlphaReLU().double()
    exact = wide.loss(z.double(), doors.labels(z))
    found = solved(way, act.loss, z, doors.labels(z))
    check([found, act.tau], [exact, wide.tau])


@for_every(name=("softmax", "sparsemax", "entmax", "normmax", "sharmix_fixed"))
def test_attention(way, name):
    query, key, value = (rows(2, 3, length, 8) for length in (5, 7, 7))
    mask = torch.arange(7) < torch.arange(5).unsqueeze(-1)  # the first query sees no key
    exact = sharmix.attention(query.double(), key.double(), value.double(), name, mask)
    check([solved(way, sharmix.attention, query, key, value, name, mask)], [exact])


@for_every(name=("sharmix_learned", "entmax_learned", "sparsemax", "alpha_relu"))
def test_the_linear_loss_with_learned_orders(way, name):
    hidden, weight, targets = rows(6, 8), rows(5, 8), torch.arange(6) % 5
    results = []
    for dtype in (torch.float64, torch.float32):
        act = doors.build(name, dtype)
        inputs = [one.to(dtype, copy=True).requires_grad_() for one in (hidden, weight)]
        with without_float64(way) if dtype == torch.float32 else contextlib.nullcontext():
            loss = act.linear_loss(*inputs, None, targets)
            results.append([loss, *torch.autograd.grad(loss, [*inputs, *act.parameters()])])
    check(results[1], results[0])


def test_second_derivatives(way):
    def curvature(z):
        z = z.clone().requires_grad_()
        loss = sharmix.sharmix(z, 1.25, 1.5).square().sum() + sharmix.fenchel_young_loss(z, doors.labels(z), 1.5, 1.5)
        (gradient,) = torch.autograd.grad(loss, z, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), z)

    z = rows(3, 4)
    check(solved(way, curvature, z), curvature(z.double()))


@pytest.mark.slow
def test_errors_of_rows_of_all_sizes():
    """The goal holds for q ≤ 2 and r ≤ 2 in the concave region.

    For a larger r there are (r−1) log(classes) units of rounding in T₀ exp((q−r) R_q). For q > 2 the derivative of a
    class that has just joined the support has no bound.
    """

    def results(z, direction, q, r):
        z = z.clone().requires_grad_()
        p, loss = sharmix.sharmix(z, q, r), sharmix.fenchel_young_loss(z, doors.labels(z), q, r, reduction="none")
        return p, loss, *(torch.autograd.grad(value, z)[0] for value in (loss.sum(), (p * direction).sum()))

    by_goal = {GOAL: {}, 3e-5: {}}
    for (q, r), classes, scale in itertools.product(
        CONCAVE + BORDER + LARGE_R + OUTSIDE + LARGE_Q, (1, 7, 300), (0.01, 1.0, 100.0)
    ):
        z = rows(3, classes, scale=scale)
        given = rows(3, classes).flip(0), q, r
        found, exact = solved(PLAIN, results, z, *given), results(z.double(), *given)
        for name, one, other in zip(("p", "loss", "gradient of the loss", "of p"), found, exact, strict=True):
            if name == "of p" and (q, r) in LARGE_Q:
                continue
            goal = 3e-5 if name == "of p" and (q, r) in LARGE_R + OUTSIDE else GOAL
            by_goal[goal][name, q, r, classes, scale] = error(one.detach(), other.detach())
    for goal, errors in by_goal.items():
        assert_errors_within(errors, goal)


@pytest.mark.slow
def test_errors_of_classes_that_have_just_joined():
    """For q between 1.5 and 2 their gradient rises like p^(2−q), steeper than any line.

    So single classes of thousands are wrong by up to a hundredth of the largest. The mean over the row is not.
    """

    def gradient(z, direction, q):
        z = z.clone().requires_grad_()
        return torch.autograd.grad((sharmix.sharmix(z, q, q) * direction).sum(), z)[0]

    errors, means = {}, {}
    for q, classes in itertools.product([1.6, 1.79, 1.95], (1000, 4000)):
        given = rows(64, classes, scale=0.01), rows(64, classes).flip(0)
        found, exact = solved(PLAIN, gradient, *given, q), gradient(*(one.double() for one in given), q)
        wrong = (found - exact).abs() / exact.abs().amax(-1, keepdim=True).clamp_min(1)
        errors[q, classes], means[q, classes] = wrong.max().item(), wrong.mean(-1).max().item()
    assert_errors_within(errors, 1e-2)
    assert_errors_within(means, GOAL)


@pytest.mark.slow
def test_thousands_of_ties_beside_one_class():
    """The rounding errors of all of them add up where they have just joined the support."""
    errors = {}
    for (q, r), classes in itertools.product([(1.25, 1.5), (1.5, 1.5), (2.0, 2.0), (2.0, 1.5)], (1000, 32_000)):
        z = torch.zeros(24, classes)
        z[:, 0] = torch.linspace(0.8, 3.0, len(z))
        p = solved(PLAIN, sharmix.sharmix, z, q, r)
        errors[q, r, classes] = error(p, sharmix.sharmix(z.double(), q, r))
    assert_errors_within(errors, 2e-5)


@for_every("q, r", [(1.0, 12.0), (1.5, 12.0), (2.0, 40.0), (1.0, 50.0)])
def test_ties_at_steep_orders_stay_finite(q, r):
    """Where T₀ exp((q−r) R_q) is below the least number that float32 holds."""
    z = torch.zeros(2, 10_000)
    z[1, 0] = 1.0
    function = functools.partial(sharmix.sharmix, q=q, r=r)
    check(solved(PLAIN, doors.value_and_gradient, function, z), doors.value_and_gradient(function, z.double()))


def test_logits_that_are_not_finite():
    z = rows(4, 5)
    z[0, 1], z[1, 2], z[2, 3], z[3] = -torch.inf, torch.inf, torch.nan, -torch.inf
    for q, r in [(1.0, 1.0), (1.5, 1.5), (1.75, 1.25), (3.0, 3.0)]:
        exact = sharmix.sharmix(z, q, r)
        found = solved(PLAIN, sharmix.sharmix, z, q, r)
        torch.testing.assert_close(found, exact, rtol=0, atol=1e-6, equal_nan=True)


def test_orders_beside_the_border_count_as_concave():
    """Rounded to float32, 2 − 1/q can be above r by 1e-7."""
    z, q = rows(101, 3), torch.linspace(1.0, 2.0, 101).reshape(-1, 1)
    with without_float64():
        sharmix.sharmix(z, q, 2 - 1 / q, nonconcave="error")
        with pytest.raises(ValueError, match="concave region"):
            sharmix.sharmix(z, q, 2 - 1 / q - 1e-4, nonconcave="error")


@for_every("q, r", [(1.5, 1.5), (1.3, 1.5), (2.0, 2.0)], by_class=(False, True))
def test_prediction_sets(way, q, r, by_class):
    z, labels = rows(200, 6, scale=3.0), doors.labels(doors.logits(200, 6))
    exact = support_scores(z.double(), q=q, r=r)
    with without_float64(way):
        found = support_scores(z, q=q, r=r)
        predictor = SupportPredictor(q, r).calibrate(z, labels, 0.8, class_conditional=by_class)
        again = SupportPredictor(**vars(predictor))
        sets = again.sets(z)
    assert ((found.double() - exact).abs() <= GOAL * exact.clamp_min(1)).all()
    assert sets[torch.arange(200), labels].float().mean() >= 0.8
