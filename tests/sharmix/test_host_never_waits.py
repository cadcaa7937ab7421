"""On a GPU the host waits for no call, so it reads no value of a tensor: a wrong one makes its row NaN.

Fake tensors have no values, and raise where one is read. Those on `cuda` need no GPU, but autograd's engine does: there
each node's backward pass is called after its forward pass. Fake tensors on the CPU, whose values the library is told
not to read, go through the engine.
"""

import contextlib
import os
import subprocess
import sys
from functools import partial

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

import sharmix
from sharmix import _arguments, _linear_loss, _private_torch, functional
from sharmix._operators import alpha_relu, autograd, backend, torch_operators
from tests.sharmix import doors
from tests.sharmix.cases import for_every

pytest.importorskip("triton")

from sharmix._operators.triton import implementation, layer, supports

ROWS, CLASSES = 6, 5
VALUES = {"q": 1.25, "r": 1.5, "temperature": 1.0}
KINDS = ["numbers", "one learned value each", "a value for each row"]
EACH_KIND = [pytest.param(KINDS[0], marks=pytest.mark.medium), *KINDS[1:]]
OPTIONS = [
    {},
    {"reduction": "none"},
    {"reduction": "sum", "ignore_index": 1},
    {"label_smoothing": 0.1},
    {"weight": True},
    {"weight": True, "label_smoothing": 0.1},
]
# plain callers; the operators of others; and losses composed of torch's own operations
WAYS = [("plain", "cuda"), ("operators", "cuda"), ("operators", "cpu"), ("composed", "cpu")]


class Unreadable(FakeTensorMode):
    """Fake tensors, also within the library's own operators, which torch would replace by their shapes."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace != "sharmix":
            return super().__torch_dispatch__(func, types, args, kwargs)
        with self:
            key = torch._C.DispatchKey.CPU
            kernel = torch.library.get_kernel(func, key)
            return kernel.call_boxed(torch._C.DispatchKeySet(key), *args, **kwargs or {})


class Context:
    """What a node keeps from its forward pass for its backward pass."""

    def __init__(self, inputs):
        self.needs_input_grad = [isinstance(one, torch.Tensor) and one.requires_grad for one in inputs]

    def save_for_backward(self, *tensors):
        self.saved_tensors = tensors

    def set_materialize_grads(self, value):
        pass


def with_its_backward_pass(node, differentiable=False):
    """`node.apply`, which calls the backward pass, too: the usual one, or the one that can be differentiated."""

    def apply(*inputs):
        context = Context(inputs)
        with torch.no_grad():
            outputs = node.forward(context, *inputs)
        grads = [torch.ones_like(one) for one in (outputs if isinstance(outputs, tuple) else (outputs,))]
        with torch.set_grad_enabled(differentiable):
            node.backward(context, *grads)
        return outputs

    return apply


def read_nothing(monkeypatch):
    """A check may read no tensor, as on a GPU."""
    for name, module in sys.modules.items():
        if name.startswith("sharmix") and hasattr(module, "may_read"):
            monkeypatch.setattr(module, "may_read", lambda values: False)


MARKS = [(), pytest.mark.medium, pytest.mark.slow, pytest.mark.slow]


@pytest.fixture(params=[pytest.param(way, marks=mark) for way, mark in zip(WAYS, MARKS, strict=True)], ids=" on ".join)
def device(request, monkeypatch, launched):
    way, place = request.param
    for module in (backend, torch_operators):
        monkeypatch.setattr(module, "select_implementation", lambda logits, orders: implementation)
    monkeypatch.setattr(torch.cuda, "device_of", lambda tensor: contextlib.nullcontext())
    for module in (backend, functional):
        monkeypatch.setattr(module, "backend", lambda device="cpu": "torch" if way == "composed" else "triton")
    if way == "plain":
        act_as_plain_caller(monkeypatch)
    if place == "cpu":
        read_nothing(monkeypatch)
    with Unreadable(allow_non_fake_inputs=True):
        yield place


def act_as_plain_caller(monkeypatch):
    monkeypatch.setattr(_private_torch, "is_plain_call", lambda: True)
    for module in (_private_torch, autograd, alpha_relu):
        monkeypatch.setattr(module, "is_plain_tensor", lambda tensor: True)
    for module in (autograd, alpha_relu):
        monkeypatch.setattr(module, "goes_directly", lambda *_: True)
    for node in (autograd.Map, autograd.ClassLoss, alpha_relu.ClassLoss, _linear_loss._LinearLoss):
        monkeypatch.setattr(node, "apply", with_its_backward_pass(node))
    monkeypatch.setattr(
        torch.autograd, "grad", lambda output, inputs, **options: [torch.empty_like(one) for one in inputs]
    )


def logits(device, *shape):
    return torch.empty(shape or (ROWS, CLASSES), device=device, requires_grad=True)


def labels(device):
    return torch.zeros(ROWS, dtype=torch.long, device=device)


def orders(kind, device):
    shape = {"one learned value each": (), "a value for each row": (ROWS, 1)}.get(kind)
    return {
        name: value if shape is None else torch.full(shape, value, device=device, requires_grad=True)
        for name, value in VALUES.items()
    }


def given(options, device):
    return options | ({"weight": torch.ones(CLASSES, device=device)} if "weight" in options else {})


def differentiated(output, device):
    if device == "cpu":
        output.sum().backward(retain_graph=True)


def moved(module, device):
    """The module with fake tensors."""
    return module._apply(lambda values: torch.empty_like(values, device=device))


def activations():
    """Built with real tensors: constructors read values."""
    with _private_torch.outside_of_trace():
        learned = [
            sharmix.SharMiX(learned=("q", "r", "temperature"), objective=objective) for objective in ("brier", "log")
        ]
        fixed = sharmix.SharMiX(q=torch.tensor(1.3), r=torch.tensor(1.5), nonconcave="error")
        return [*(doors.build(name, torch.float32) for name in doors.NAMES), *learned, fixed]


@pytest.mark.parametrize("kind", EACH_KIND)
def test_maps(device, kind):
    z, own = logits(device), orders(kind, device)
    q, r = own["q"], own["r"]
    for output in (
        sharmix.sharmix(z, **own),
        sharmix.sharmix(z, **own, nonconcave="error", masked_rows="zeros"),
        sharmix.entmax(z, alpha=q),
        sharmix.normmax(z, alpha=q),
        sharmix.sparsemax(z, dim=0),
        sharmix.alpha_relu(z, alpha=q, tau=r) if kind != KINDS[2] else z,
        sharmix.sharma_mittal_entropy(z, q, r),
    ):
        differentiated(output, device)
    sharmix.support_size(z)
    sharmix.conformal.support_scores(z)


@pytest.mark.parametrize("kind", EACH_KIND)
def test_losses(device, kind):
    z, own = logits(device), orders(kind, device)
    for options in OPTIONS:
        for y in (labels(device), logits(device))[: 1 if "ignore_index" in options else 2]:
            loss = sharmix.fenchel_young_loss(z, y, **own, **given(options, device))
            differentiated(loss, device)
            if kind != KINDS[2]:
                differentiated(sharmix.alpha_relu_loss(z, y, alpha=1.5, tau=own["r"], **given(options, device)), device)
    for loss in (
        sharmix.fenchel_young_loss(z, y, **own, nonconcave="error"),
        sharmix.entmax_loss(z, y, alpha=own["q"]),
        sharmix.normmax_loss(z, y, alpha=own["q"]),
        sharmix.sparsemax_loss(z, y),
    ):
        differentiated(loss, device)


@pytest.mark.parametrize("device", [WAYS[0]], indirect=True, ids=" on ".join)
@pytest.mark.parametrize("kind", EACH_KIND)
def test_second_derivatives(device, kind, monkeypatch):
    nodes = autograd.Map, autograd.ClassLoss, alpha_relu.ClassLoss
    applies = [with_its_backward_pass(node, differentiable=True) for node in nodes]
    for node, apply in zip(nodes, applies, strict=True):
        monkeypatch.setattr(node, "apply", apply)
    z, own = logits(device), orders(kind, device)
    sharmix.sharmix(z, **own)
    sharmix.fenchel_young_loss(z, labels(device), **own)
    sharmix.alpha_relu_loss(z, labels(device))


@pytest.mark.medium
@pytest.mark.parametrize("options", [OPTIONS[0], OPTIONS[5]], ids=str)
def test_modules_and_criteria(device, options):
    z, y = logits(device), labels(device)
    for activation in activations():
        criterion = moved(sharmix.FenchelYoungLoss(activation, **options | {"weight": None}), device)
        criterion.weight = given(options, device).get("weight")
        differentiated(activation(z), device)
        differentiated(criterion(z, y), device)
        differentiated(criterion(logits(device, ROWS, CLASSES, 2), torch.stack([y, y], -1)), device)
        differentiated(criterion(z, logits(device)), device)


@pytest.mark.medium
@pytest.mark.parametrize("device", WAYS[:2], indirect=True, ids=" on ".join)
@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.1, "reduction": "sum"}], ids=str)
def test_linear_losses(device, options):
    """On the CPU they read which errors are not 0."""
    layer = logits(device, ROWS, 3), logits(device, CLASSES, 3), logits(device, CLASSES), labels(device)
    for kind in KINDS[:2]:
        sharmix.linear_fenchel_young_loss(*layer, **orders(kind, device), **options)
    for activation in activations():
        moved(activation, device).linear_loss(*layer, **options)


@pytest.mark.medium
@pytest.mark.parametrize("device", WAYS[:1], indirect=True, ids=" on ".join)
@for_every(kind=KINDS[:2], dtype=(torch.float32, torch.bfloat16), room=(64, 0), smoothing=(0.0, 0.1))
def test_kernels_of_linear_losses(device, launched, monkeypatch, kind, dtype, room, smoothing):
    known = supports.Supports(on_cuda=False)
    monkeypatch.setattr(known, "room", lambda classes: room)
    monkeypatch.setattr(layer, "supports_of", lambda weight: known)
    monkeypatch.setattr(layer, "_add_product", lambda *_: None)  # torch < 2.13 cannot trace it
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    for name, answer in {"backend": "triton", "is_plain_tensor": True}.items():
        monkeypatch.setattr(_linear_loss, name, lambda *_, answer=answer: answer)
    inputs = [logits(device, *shape).to(dtype) for shape in ((5000, 64), (40_000, 64), (40_000,))]
    targets = torch.zeros(5000, dtype=torch.long, device=device)
    launched.clear()
    sharmix.linear_fenchel_young_loss(*inputs, targets, **orders(kind, device), label_smoothing=smoothing)
    assert ("weight_of_lists" in launched) == (room > 0)
    assert "loss_of_rows" in launched
    sharmix.linear_fenchel_young_loss(*inputs, targets, 1.0, 1.0)  # softmax


def test_attention(device):
    with _private_torch.outside_of_trace():
        heads = sharmix.SharMiX(q=torch.full((2, 1, 1), 1.25), learned=True)
        scale, layer = sharmix.LogLengthScale(2), sharmix.SparseAttention(8, 2, batch_first=True)
    for module in (heads, scale, layer):
        moved(module, device)
    query, key, value = (logits(device, 3, 2, 4, 8) for _ in range(3))
    mask = torch.ones(4, 4, dtype=torch.bool, device=device)
    for options in ({}, {"is_causal": True}, {"attn_mask": mask}):
        differentiated(sharmix.attention(query, key, value, heads, length_scale=scale, **options), device)
    rows = logits(device, 3, 4, 8)
    differentiated(layer(rows, rows, rows, attn_mask=~mask)[0], device)


def test_the_checked_mode_reads_values(monkeypatch):
    monkeypatch.setattr(_arguments, "CHECKS_EVERYWHERE", True)
    with Unreadable(), pytest.raises(DataDependentOutputException):
        sharmix.fenchel_young_loss(logits("cuda"), labels("cuda"), label_smoothing=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SHARMIX_CHECK", "CUDA_LAUNCH_BLOCKING"])
def test_the_environment_chooses_the_checked_mode(name):
    for value in ("0", "1"):
        code = f"from sharmix import _arguments; assert _arguments.CHECKS_EVERYWHERE is {value == '1'}"
        environment = {key: it for key, it in os.environ.items() if key != "CUDA_LAUNCH_BLOCKING"} | {name: value}
        subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=60)


# What takes the place of an error. These tests compute on the CPU, where the library is told to read nothing.


class Halved(sharmix.Activation):
    """An activation of one's own, whose loss is composed."""

    def probabilities(self, logits):
        return (logits / 2).softmax(-1)

    def entropy(self, probabilities):
        return 2 * sharmix.sharma_mittal_entropy(probabilities, 1.0, 1.0)


LEARNED = {name: sharmix.SharMiX(1.9, 1.9, learned=True, objective=name) for name in ("brier", "log")}
LOSSES = {
    "loss": sharmix.fenchel_young_loss,
    "orders above 2": partial(sharmix.fenchel_young_loss, q=3.0, r=3.0),
    "outside the concave region": partial(sharmix.fenchel_young_loss, q=1.75, r=1.25),
    "sparsemax": sharmix.sparsemax_loss,
    "alpha_relu": sharmix.alpha_relu_loss,
    "softmax": sharmix.Softmax().loss,
    "composed": Halved().loss,
    **{name: activation.loss for name, activation in LEARNED.items()},
}
ONE = torch.arange(ROWS) == 1  # the row that is wrong, or left out
LEFT_OUT = torch.tensor([0, -100, 2, 3, -100, 4])
NO_CLASS = LEFT_OUT.where(~ONE, CLASSES)


@pytest.fixture(params=["plain", pytest.param("operators", marks=pytest.mark.medium)])
def reads_nothing(request, monkeypatch):
    read_nothing(monkeypatch)
    if request.param == "operators":
        for module in (autograd, alpha_relu):
            monkeypatch.setattr(module, "goes_directly", lambda *_: False)
    with sharmix.plain_torch():
        yield


def value_and_gradients(loss, z, y, *others, **options):
    z = z.clone().requires_grad_()
    value = loss(z, y, **options)
    return value.detach(), *torch.autograd.grad(value.sum(), [z, *others])


def assert_nan_in_one_row(*found):
    for values in found:
        assert values[ONE].isnan().all()
        assert values[~ONE].isfinite().all()


def assert_as_expected_but_for_one_row(found, expected):
    assert_nan_in_one_row(*found)
    torch.testing.assert_close([values[~ONE] for values in found], [values[~ONE] for values in expected])


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(
    "options",
    [OPTIONS[0], OPTIONS[5], *(pytest.param(one, marks=pytest.mark.medium) for one in OPTIONS[3:5])],
    ids=str,
)
def test_a_wrong_class_makes_its_row_nan(reads_nothing, name, options):
    z, options = 3 * doors.logits(ROWS, CLASSES), given(options, "cpu")
    expected = value_and_gradients(LOSSES[name], z, LEFT_OUT, reduction="none", **options)
    for y in (NO_CLASS, LEFT_OUT.where(~ONE, -1)):
        found = value_and_gradients(LOSSES[name], z, y, reduction="none", **options)
        assert_as_expected_but_for_one_row(found, expected)
        for reduction in ("mean", "sum"):
            value, gradient = value_and_gradients(LOSSES[name], z, y, reduction=reduction, **options)
            assert value.isnan()
            assert_nan_in_one_row(gradient)


@pytest.mark.parametrize("name", LOSSES)
def test_a_row_that_is_no_distribution_becomes_nan(reads_nothing, name):
    z = 3 * doors.logits(ROWS, CLASSES)
    good = doors.soft_targets(z)
    for wrong in (2 * good[0], good[0] - good[0].roll(1), good[0] * torch.nan):
        for options in ({}, {"weight": torch.ones(CLASSES)}, {"label_smoothing": 0.1}):
            loss = partial(value_and_gradients, LOSSES[name], z, reduction="none", **options)
            assert_as_expected_but_for_one_row(loss(torch.where(ONE[:, None], wrong, good)), loss(good))


@pytest.mark.parametrize("activation", [sharmix.Softmax(), sharmix.SharMiX(), Halved()], ids=repr)
@pytest.mark.parametrize("options", [OPTIONS[0], OPTIONS[3]], ids=str)
def test_a_wrong_class_in_a_linear_loss(reads_nothing, activation, options):
    hidden, weight = doors.logits(ROWS, 3), doors.logits(CLASSES, 3)
    for reduction in ("mean", "sum"):
        loss = partial(activation.linear_loss, weight=weight, bias=None, reduction=reduction, **options)
        value, by_hidden = value_and_gradients(lambda z, y, loss=loss: loss(z, targets=y), hidden, NO_CLASS)
        assert value.isnan()
        assert_nan_in_one_row(by_hidden)


def test_the_second_derivative_of_a_wrong_class_is_nan(reads_nothing):
    z = doors.logits(ROWS, CLASSES).requires_grad_()
    for loss in (sharmix.fenchel_young_loss, sharmix.alpha_relu_loss):
        gradient = torch.autograd.grad(loss(z, NO_CLASS), z, create_graph=True)[0]
        assert_nan_in_one_row(gradient)
        assert torch.autograd.grad(gradient.square().sum(), z)[0].isnan()[1].all()


NOT_ALLOWED = {"q": [0.5, 1e4, torch.nan], "r": [0.0, 1e4, torch.inf], "temperature": [0.0, -1.0, torch.nan]}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in NOT_ALLOWED for value in NOT_ALLOWED[name]])
def test_an_order_that_is_not_allowed_makes_its_rows_nan(reads_nothing, name, value):
    z, y = doors.logits(ROWS, CLASSES).requires_grad_(), torch.zeros(ROWS, dtype=torch.long)
    of_one_row = torch.where(ONE[:, None], value, VALUES[name])
    for order, wrong in ((torch.tensor(value), ONE | True), (of_one_row, ONE)):
        given = {name: order}
        for output in (sharmix.sharmix(z, **given), sharmix.fenchel_young_loss(z, y, **given, reduction="none")):
            for rows in (output, *torch.autograd.grad(output.sum(), z)):
                is_wrong = rows.isnan().reshape(ROWS, -1)
                assert is_wrong.all(-1).equal(is_wrong.any(-1))
                assert is_wrong.any(-1).equal(wrong)


def test_other_names_of_an_order(reads_nothing):
    z = doors.logits(ROWS, CLASSES)
    for p in (
        sharmix.entmax(z, alpha=torch.tensor(0.5)),
        sharmix.normmax(z, alpha=torch.tensor(1.0)),
        sharmix.alpha_relu(z, alpha=torch.tensor(1.0)),
        sharmix.sharma_mittal_entropy(z.softmax(-1), torch.tensor(0.5), 1.5),
        sharmix.sharmix(z, torch.tensor(1.75), torch.tensor(1.25), nonconcave="error"),
        sharmix.sharmix(z, 1.75, torch.tensor(1.25), nonconcave="error"),
        sharmix.sharmix(z, torch.tensor(1.75), 1.25, nonconcave="error"),
    ):
        assert p.isnan().all()
    of_rows = sharmix.sharmix(z, torch.where(ONE[:, None], 1.75, 1.25), 1.25, nonconcave="error")
    assert_nan_in_one_row(of_rows)
    torch.testing.assert_close(of_rows[0], sharmix.sharmix(z[0], 1.25, 1.25))
