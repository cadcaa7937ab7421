"""The output layer fused with its loss is the loss of the layer's logits, value and gradients."""

import pytest
import torch
from torch.nn.functional import linear

import sharmix
from sharmix import _layer_in_blocks
from tests.sharmix.cases import for_every

pytestmark = pytest.mark.usefixtures("each_backend")
CLASSES, FEATURES = 60, 8


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(_layer_in_blocks, "_CHUNK_BYTES", 7 * CLASSES * 8)  # 7 rows of float64


def layer(scale, tokens=30, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(tokens, FEATURES, generator=generator, dtype=dtype)
    weight = scale * torch.randn(CLASSES, FEATURES, generator=generator, dtype=dtype)
    bias = torch.randn(CLASSES, generator=generator, dtype=dtype) * scale
    targets = torch.randint(CLASSES, (tokens,), generator=generator)
    targets[3] = -100
    return [hidden.requires_grad_(), weight.requires_grad_(), bias.requires_grad_()], targets


SCALES = [2.0, 0.01]  # few classes in the support, or all


def both(tensors, targets, reduction, *orders):
    fused = sharmix.linear_fenchel_young_loss(*tensors, targets, *orders, reduction=reduction)
    whole = sharmix.fenchel_young_loss(linear(*tensors), targets, *orders, reduction=reduction)
    return fused, whole


@for_every(
    "q, r",
    [(1.25, 1.5), (1.3, 1.6), (2.0, 2.0), (1.75, 1.25), (2.5, 2.5), (1.0, 1.0)],
    scale=SCALES,
    reduction=["mean", "sum"],
)
def test_value_and_gradients_are_those_of_the_whole_logits(scale, reduction, q, r):
    tensors, targets = layer(scale)
    orders = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (q, r)]
    fused, whole = both(tensors, targets, reduction, *orders)
    torch.testing.assert_close(fused.double(), whole, rtol=1e-6, atol=1e-9)
    theirs = torch.autograd.grad(3 * whole, [*tensors, *orders])
    for keeps_graph in (True, False):
        mine = torch.autograd.grad(3 * fused, [*tensors, *orders], retain_graph=keeps_graph)
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-9)


def test_over_no_rows_the_gradients_are_0():
    tensors, targets = layer(2.0)
    for hidden, labels in ((tensors[0], torch.full_like(targets, -100)), (tensors[0][:0], targets[:0])):
        for reduction in ("mean", "sum"):
            loss = sharmix.linear_fenchel_young_loss(hidden, *tensors[1:], labels, reduction=reduction)
            assert loss.isnan() if reduction == "mean" else loss == 0
            assert all((gradient == 0).all() for gradient in torch.autograd.grad(loss, tensors))


@pytest.mark.parametrize("base", [sharmix.SharMiX, sharmix.Softmax])
def test_a_loss_of_ones_own_is_that_of_the_layer(base):
    class Own(base):
        def loss(self, logits, targets, **options):
            return 7 * super().loss(logits, targets, **options)

    tensors, targets = layer(1.0)
    torch.testing.assert_close(Own().linear_loss(*tensors, targets), Own().loss(linear(*tensors), targets))


@pytest.mark.parametrize("name", ["softmax", "entmax_learned"])
def test_the_loss_of_a_layer_does_not_depend_on_the_dimension_of_the_map(name):
    tensors, targets = layer(1.0)
    first, last = (
        sharmix.build_activation(name, dim=dim).linear_loss(*tensors, targets, label_smoothing=0.1) for dim in (0, -1)
    )
    assert torch.equal(first, last)


def test_more_dimensions_no_bias_and_no_gradient():
    (hidden, weight, _), targets = layer(2.0)
    hidden, targets = hidden.reshape(5, 6, FEATURES), targets.reshape(5, 6)
    fused, whole = both((hidden, weight, None), targets, "mean")
    torch.testing.assert_close(fused.double(), whole, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(*[torch.autograd.grad(loss, hidden)[0] for loss in (fused, whole)])
    with torch.no_grad():
        assert not sharmix.linear_fenchel_young_loss(hidden, weight, None, targets).requires_grad


@pytest.mark.parametrize("scale", SCALES)
def test_no_gradient_is_kept_for_a_frozen_part_of_the_layer(scale):
    for frozen in range(3):
        tensors, targets = layer(scale)
        tensors[frozen].requires_grad_(False)
        fused, whole = both(tensors, targets, "mean")
        kept = [gradient is not None for gradient in fused.grad_fn.saved_tensors[1:]]  # after the number of rows
        assert kept == [place != frozen for place in range(3)]
        others = [tensor for tensor in tensors if tensor.requires_grad]
        mine, theirs = (torch.autograd.grad(loss, others) for loss in (fused, whole))
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", ["sharmix_learned", "softmax", "sparsemax"])
def test_the_gradient_of_the_weight_is_sparse_on_request(name, scale):
    tensors, targets = layer(scale, tokens=5)
    activation = sharmix.build_activation(name)
    dense = torch.autograd.grad(activation.linear_loss(*tensors, targets), tensors)
    loss = activation.linear_loss(*tensors, targets, sparse_grad=True)
    kept, mine = (torch.autograd.grad(loss, tensors, retain_graph=keeps) for keeps in (True, False))
    for hidden, weight, bias in (kept, mine):
        touched = dense[1].any(1).nonzero().squeeze(1)
        torch.testing.assert_close(weight.coalesce().indices()[0], touched, rtol=0, atol=0)
        torch.testing.assert_close([hidden, weight.to_dense(), bias], list(dense))


@pytest.mark.parametrize("autocast", [False, True])
def test_sparse_adam_leaves_the_other_rows_alone(autocast):
    (hidden, weight, _), targets = layer(20.0, tokens=5, dtype=torch.float32)
    before = weight.detach().clone()
    with torch.autocast("cpu", enabled=autocast):
        loss = sharmix.linear_fenchel_young_loss(hidden, weight, None, targets, q=2.0, r=2.0, sparse_grad=True)
    loss.backward()
    torch.optim.SparseAdam([weight]).step()
    changed = (weight != before).any(1)
    assert 4 <= changed.sum() < CLASSES // 2
    assert changed[targets[targets >= 0]].any()


def test_half_precision_is_summed_in_single():
    tensors, targets = layer(1.0)
    halves = [tensor.detach().bfloat16().requires_grad_() for tensor in tensors]
    fused, whole = both(halves, targets, "mean")
    assert fused.dtype == torch.float32
    torch.testing.assert_close(fused, whole)
    mine, theirs = (torch.autograd.grad(loss, halves) for loss in both(halves, targets, "mean"))
    torch.testing.assert_close(mine, theirs, rtol=0.05, atol=1e-3)


def test_autocast_computes_in_its_type():
    tensors, targets = layer(1.0, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        hidden = linear(tensors[0], torch.eye(FEATURES))
        fused = sharmix.linear_fenchel_young_loss(hidden, *tensors[1:], targets)
        whole = sharmix.fenchel_young_loss(linear(hidden, *tensors[1:]), targets)
    torch.testing.assert_close(fused, whole)
    mine, theirs = (torch.autograd.grad(loss, tensors, retain_graph=True) for loss in (fused, whole))
    torch.testing.assert_close(mine, theirs, rtol=0.05, atol=2e-3)


@pytest.mark.medium
def test_a_compiler_and_function_transforms_get_the_same_loss():
    tensors, targets = layer(2.0)
    whole = both(tensors, targets, "mean")[1]

    def loss(hidden):
        return sharmix.linear_fenchel_young_loss(hidden, *tensors[1:], targets)

    torch.testing.assert_close(torch.func.grad(loss)(tensors[0]), torch.autograd.grad(whole, tensors[0])[0])
    torch.testing.assert_close(torch.compile(loss, fullgraph=True, backend="eager")(tensors[0]), whole)


def test_the_backward_pass_is_not_differentiated_again():
    tensors, targets = layer(2.0)
    loss = sharmix.linear_fenchel_young_loss(*tensors, targets).square()
    with pytest.raises(RuntimeError, match="cannot be differentiated again"):
        torch.autograd.grad(loss, tensors[0], create_graph=True)


@for_every(
    "change, error, message",
    (
        ({"reduction": "none"}, ValueError, "'mean' or 'sum'"),
        ({"weight": torch.zeros(CLASSES, FEATURES + 1)}, ValueError, r"weight of shape \(60, 9\)"),
        ({"weight": torch.zeros(FEATURES)}, ValueError, r"weight of shape \(8,\)"),
        ({"q": 1.75, "r": 1.25, "nonconcave": "error"}, ValueError, "concave"),
        ({"weight": torch.zeros(0, FEATURES), "bias": None}, ValueError, "at least 1 class"),
        ({"bias": torch.zeros(CLASSES + 1)}, ValueError, r"bias of shape \(61,\)"),
        ({"targets": torch.zeros(29, dtype=torch.long)}, ValueError, r"class indices of shape \(29,\)"),
        ({"targets": torch.zeros(30)}, TypeError, "integer type"),
        ({"targets": torch.full((30,), CLASSES)}, ValueError, "label 60 is out of range"),
        ({"hidden": torch.zeros(30, FEATURES, dtype=torch.long)}, TypeError, "hidden must be a floating-point"),
        ({"q": torch.ones(30, 1)}, ValueError, "q of shape"),
        ({"targets": torch.zeros(30, dtype=torch.long, device="meta")}, ValueError, "targets are on meta"),
    ),
)
def test_what_is_not_allowed(change, error, message):
    (hidden, weight, bias), targets = layer(1.0, dtype=torch.float32)
    given = {"hidden": hidden, "weight": weight, "bias": bias, "targets": targets}
    with pytest.raises(error, match=message):
        sharmix.linear_fenchel_young_loss(**given | change)


PROPER_SCORES = [("sharmix_learned", {"objective": objective}, "sum") for objective in ("brier", "log")]


MEDIUM = ("entmax_learned", "entmax_package", PROPER_SCORES[1])  # variations of sharmix_learned, entmax and Brier


@pytest.mark.parametrize(
    ("name", "parameters", "reduction"),
    [
        pytest.param(*one, marks=[pytest.mark.medium] if one[0] in MEDIUM or one in MEDIUM else [])
        for one in [*((name, {}, "mean") for name in sharmix.available_activations()), *PROPER_SCORES]
    ],
)
@for_every(scale=SCALES, label_smoothing=[0.0, 0.1])
def test_every_activation_has_the_loss_of_the_whole_logits(name, parameters, reduction, scale, label_smoothing):
    options = {"label_smoothing": label_smoothing, "reduction": reduction}
    tensors, targets = layer(scale)
    fused, whole = (sharmix.build_activation(name, **parameters).double() for _ in range(2))
    mine = fused.linear_loss(*tensors, targets, **options)
    theirs = whole.loss(linear(*tensors), targets, **options)
    torch.testing.assert_close(mine.double(), theirs, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(
        torch.autograd.grad(mine, [*tensors, *fused.parameters()]),
        torch.autograd.grad(theirs, [*tensors, *whole.parameters()]),
        rtol=1e-6,
        atol=1e-9,
    )


def test_an_order_gets_its_gradient_as_a_buffer_and_beside_a_parameter_that_the_loss_does_not_use():
    tensors, targets = layer(2.0)
    alpha = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    act = sharmix.Entmax(alpha=alpha)
    act.unused = torch.nn.Parameter(torch.zeros(2))
    fused, whole = act.linear_loss(*tensors, targets), act.loss(linear(*tensors), targets)
    torch.testing.assert_close(*(torch.autograd.grad(loss, alpha) for loss in (fused, whole)), rtol=1e-6, atol=1e-9)


def test_the_threshold_of_alpha_relu_is_calibrated_on_all_rows_that_count():
    tensors, targets = layer(2.0)
    fused, whole = (sharmix.build_activation("alpha_relu").double() for _ in range(2))
    fused.linear_loss(*tensors, targets)
    kept = targets != -100
    whole.loss(linear(*tensors)[kept], targets[kept])
    torch.testing.assert_close(fused.tau, whole.tau)
    assert torch.equal(fused.state_dict()["tau"], fused.tau)
    before = fused.tau.clone()
    fused.linear_loss(3 * tensors[0], *tensors[1:], targets)
    assert torch.equal(fused.tau, before)
