"""The losses as modules: arguments, layouts and class weights of `torch.nn.CrossEntropyLoss`."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import one_hot

import sharmix
from tests.sharmix.cases import for_every

pytestmark = pytest.mark.usefixtures("each_solver")

CRITERIA = {
    "softmax": lambda **options: sharmix.FenchelYoungLoss("softmax", **options),
    "SharMiXLoss": sharmix.SharMiXLoss,
    "learned": lambda **options: sharmix.SharMiXLoss(learned=True, **options),
    "EntmaxLoss": sharmix.EntmaxLoss,
    "SparsemaxLoss": sharmix.SparsemaxLoss,
    "AlphaReLULoss": lambda **options: sharmix.AlphaReLULoss(tau=0.3, **options),
    "NormmaxLoss": sharmix.NormmaxLoss,
}
WEIGHT = torch.tensor([1.0, 0.5, 2.0, 0.25], dtype=torch.float64)


def batch(*shape):
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(*shape[:1], 4, *shape[1:], dtype=torch.float64, generator=generator)
    return z.requires_grad_(), torch.randint(4, shape, generator=generator)


def soft(y):
    return (0.7 * one_hot(y, 4) + 0.3 * one_hot((y + 1) % 4, 4)).double().movedim(-1, 1)


@pytest.mark.parametrize("shape", [(5,), (5, 3), (5, 3, 2)])
@pytest.mark.parametrize("weight", [None, WEIGHT])
@for_every(reduction=["mean", "sum", "none"], kind=["classes", "smoothed", "soft"])
def test_at_softmax_it_is_torch_s_cross_entropy(shape, weight, reduction, kind):
    """But for the entropy of soft targets, which a divergence leaves out."""
    z, y = batch(*shape)
    y.view(-1)[0] = -100
    targets = soft(y.clamp_min(0)) if kind == "soft" else y
    options = {"weight": weight, "reduction": reduction, "label_smoothing": 0.1 if kind == "smoothed" else 0.0}
    ours, theirs = sharmix.FenchelYoungLoss("softmax", **options), nn.CrossEntropyLoss(**options)
    loss, expected = ours(z, targets), theirs(z, targets)
    if kind == "classes":
        torch.testing.assert_close(loss, expected)
    elif kind == "soft" and weight is None and reduction == "none":
        torch.testing.assert_close(loss, expected - torch.special.entr(targets).sum(1))
    by_us, by_torch = (torch.autograd.grad(one.sum(), z)[0] for one in (loss, expected))
    torch.testing.assert_close(by_us, by_torch)


@pytest.mark.parametrize("name", CRITERIA)
def test_layouts_and_reductions(name):
    z, y = batch(5, 3)
    flat, classes = z.detach().movedim(1, -1).reshape(-1, 4), y.flatten()
    for targets, rows in ((y, classes), (soft(y), soft(y).movedim(1, -1).reshape(-1, 4))):
        each = CRITERIA[name](reduction="none").double()
        losses = each(z, targets)
        assert losses.shape == (5, 3)
        torch.testing.assert_close(losses.flatten(), each(flat, rows))
        torch.testing.assert_close(losses.flatten()[0], each(flat[0], rows[0]))  # one example, (C)
        for reduction in ("mean", "sum"):
            loss = CRITERIA[name](reduction=reduction).double()(z, targets)
            torch.testing.assert_close(loss, getattr(losses, reduction)())


@for_every(
    "error, named, option",
    (
        (ValueError, "reduction='elementwise_mean' is not allowed; .*'mean'", {"reduction": "elementwise_mean"}),
        (ValueError, "label_smoothing=2.0 is not allowed; .*between 0 and 1", {"label_smoothing": 2.0}),
        (TypeError, "ignore_index must be an integer, got None", {"ignore_index": None}),
    ),
    criterion=CRITERIA,
)
def test_an_option_that_is_not_allowed_is_refused_when_the_criterion_is_built(error, named, option, criterion):
    with pytest.raises(error, match=f"^{named}"):
        criterion(**option)


def test_an_integer_of_numpy_is_an_index_to_ignore_as_in_torch():
    z, y = batch(3)
    found = [sharmix.SharMiXLoss(ignore_index=index)(z, y) for index in (1, np.int64(1), torch.tensor(1))]
    assert found[0] == found[1] == found[2] == sharmix.fenchel_young_loss(z, y, ignore_index=np.int64(1))


def test_probabilities_in_place_of_logits_are_warned_of_once():
    y = torch.tensor([0, 1])
    for rows in (torch.tensor([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]]), torch.rand(2, 3).softmax(-1).bfloat16()):
        criterion = sharmix.SharMiXLoss()
        with pytest.warns(UserWarning, match=r"SharMiXLoss are probabilities.*softmax") as caught:
            criterion(rows, y)
        assert caught[0].filename == __file__
        criterion(rows, y)
    with pytest.warns(UserWarning, match="probabilities"):
        sharmix.SharMiXLoss()(torch.rand(2, 3, 5).softmax(1), torch.zeros(2, 5).long())
    for rows in (torch.tensor([[0.5, 0.75, -0.25], [1.0, 0.0, 0.0]]), torch.tensor([[2.0, 1.0, 0.0]] * 2)):
        sharmix.SharMiXLoss()(rows, y)  # a warning would be an error
    sharmix.SharMiXLoss()(torch.ones(2, 1), 0 * y)
    with pytest.raises(TypeError, match="floating-point"):
        sharmix.SharMiXLoss()(torch.eye(2).long(), y)  # the error alone


def test_what_is_no_activation_of_a_criterion_or_does_not_fit_its_layout_is_refused():
    with pytest.raises(TypeError, match=r"instance of sharmix\.Activation, got Softmax"):
        sharmix.FenchelYoungLoss(nn.Softmax())
    with pytest.raises(ValueError, match="dim=1 of the activation"):
        sharmix.FenchelYoungLoss(sharmix.Softmax(dim=1))
    with pytest.raises(ValueError, match=r"logits of shape \(2, 3, 5\), classes along dim=1; .* shape \(2, 5\)"):
        sharmix.SharMiXLoss()(torch.randn(2, 3, 5), torch.zeros(2, 3).long())


def test_the_options_of_an_activation_reach_it():
    for criterion, name, value in (
        (sharmix.EntmaxLoss(learned=True, objective="brier"), "objective", "brier"),
        (sharmix.NormmaxLoss(learned=True, objective="brier"), "objective", "brier"),
        (sharmix.SharMiXLoss(nonconcave="error"), "nonconcave", "error"),
        (sharmix.AlphaReLULoss(alpha=1.25), "alpha", 1.25),
    ):
        assert getattr(criterion.activation, name) == value
    assert sharmix.SparsemaxLoss(reduction="sum").extra_repr() == "reduction='sum'"


@pytest.mark.medium
def test_skorch_which_knows_cross_entropy_by_its_class_gives_probabilities_with_a_map():
    from skorch import NeuralNetClassifier

    x, y = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32), np.arange(30) % 3
    layer = {"module__in_features": 4, "module__out_features": 3}
    options = {"max_epochs": 1, "verbose": 0, "criterion": sharmix.EntmaxLoss, "criterion__learned": True}
    net = NeuralNetClassifier(nn.Linear, **layer, **options, predict_nonlinearity=sharmix.entmax).fit(x, y)
    logits = net.forward(x)
    np.testing.assert_array_equal(net.predict_proba(x), sharmix.entmax(logits))
    net.set_params(predict_nonlinearity=lambda z: net.criterion_.activation(z))
    np.testing.assert_array_equal(net.predict_proba(x), net.criterion_.activation(logits).detach())


def test_a_criterion_shows_the_orders_of_its_activation():
    for criterion, names in (
        (sharmix.SharMiXLoss(q=1.5, r=1.75, learned=True), ("q", "r", "temperature")),
        (sharmix.EntmaxLoss(alpha=1.75), ("alpha",)),
        (sharmix.NormmaxLoss(), ("alpha",)),
        (sharmix.AlphaReLULoss(tau=0.3), ("alpha", "tau")),
    ):
        for name in names:
            assert getattr(criterion, name) is getattr(criterion.activation, name)
            with pytest.raises(AttributeError, match="no setter"):
                setattr(criterion, name, 2.0)
