"""What torch promises of softmax and cross_entropy, kept by maps and losses: devices, memory, types, shapes, export."""

import io
from contextlib import nullcontext

import pytest
import torch
from torch._subclasses import FakeTensorMode

import sharmix
from tests.sharmix.cases import every_case, for_every
from tests.sharmix.doors import EVERYTHING, LOSSES, NAMES, build, labels, logits, soft_targets, value_and_gradient


@pytest.fixture(params=["in use", pytest.param("plain torch", marks=pytest.mark.medium)])
def each_implementation(request):
    """For one test alone, where the backends of `conftest` last until their module ends."""
    with sharmix.plain_torch() if request.param == "plain torch" else nullcontext():
        yield


# The meta device: shapes without values, on which large models are built before their weights are loaded.


def trained_a_little(name):
    """An activation whose state is not the one that it is built with."""
    act = build(name, torch.float32)
    with torch.no_grad():
        for tensor in act.state_dict().values():
            tensor.add_(0.0625)
    return act


@pytest.mark.parametrize("assign", [False, True])
@for_every(name=NAMES)
def test_an_activation_built_on_the_meta_device_works_once_it_is_loaded(assign, name):
    z = logits(dtype=torch.float32)
    trained = trained_a_little(name)
    with torch.device("meta"):
        act = build(name, torch.float32)
    assert all(parameter.is_meta for parameter in act.parameters())
    if not assign:
        act.to_empty(device="cpu")
    act.load_state_dict(trained.state_dict(), assign=assign)
    assert torch.equal(act(z), trained(z))
    loss = act.loss(z, labels(z))
    assert torch.equal(loss, trained.loss(z, labels(z)))
    for parameter in act.parameters():
        assert torch.autograd.grad(loss, parameter, retain_graph=True)[0] != 0


def described(function, z):
    """What can be said of output and gradient without values."""
    z = z.requires_grad_()
    output = function(z)
    (gradient,) = torch.autograd.grad(output.float().sum(), z)
    return output.shape, output.dtype, output.stride(), gradient.shape, gradient.dtype


def learned_on(z, *shape):
    return torch.full(shape, 1.5, device=z.device, requires_grad=True)


WITHOUT_VALUES = EVERYTHING | {
    "along the first dimension": lambda z: sharmix.sharmix(z, dim=0),
    "entmax of a learned order": lambda z: sharmix.entmax(z, alpha=learned_on(z)),
    "a learned order for each row": lambda z: sharmix.sharmix(z, learned_on(z, *z.shape[:-1], 1)),
    "loss of learned orders": lambda z: sharmix.fenchel_young_loss(z, labels(z), learned_on(z), learned_on(z)),
    "smoothed loss of each row": lambda z: sharmix.fenchel_young_loss(
        z, labels(z), label_smoothing=0.1, reduction="none"
    ),
    "soft loss, summed": lambda z: sharmix.fenchel_young_loss(z, soft_targets(z), reduction="sum"),
    "entropy": lambda z: sharmix.sharma_mittal_entropy(z, 1.25, 1.5),
    **{f"{name} module": lambda z, name=name: module_on(z, name)(z) for name in NAMES},
    **{f"{name} module's loss": lambda z, name=name: module_on(z, name).loss(z, labels(z)) for name in NAMES},
}


def module_on(z, name):
    act = build(name, torch.float32)
    return act.to("meta") if z.is_meta else act


@pytest.mark.medium
@pytest.mark.parametrize("kind", ["meta", "fake"])
@for_every(function=WITHOUT_VALUES, dtype=(torch.float32, torch.bfloat16), shape=((3, 4), (2, 3, 5), (0, 4)))
def test_tensors_without_values_have_the_shapes_types_and_strides_of_those_with(kind, function, dtype, shape):
    expected = described(function, logits(*shape, dtype=dtype))
    z = logits(*shape, dtype=dtype)
    with FakeTensorMode() if kind == "fake" else nullcontext() as mode:
        assert described(function, mode.from_tensor(z) if mode else z.to("meta")) == expected


# Layout: softmax's result is contiguous, whatever the logits' strides and wherever the classes are.


def layouts():
    yield "contiguous", logits(2, 3, 4, 5)
    yield "channels last", logits(2, 3, 4, 5).to(memory_format=torch.channels_last)
    yield "permuted", logits(5, 4, 3, 2).permute(3, 2, 1, 0)
    yield "every other", logits(2, 3, 4, 10)[..., ::2]
    yield "expanded rows", logits(1, 3, 4, 5).expand(2, 3, 4, 5)
    yield "expanded classes", logits(2, 3, 4, 1).expand(2, 3, 4, 5)
    yield "with an offset", logits(121)[1:].view(2, 3, 4, 5)
    yield "overlapping", logits(70).as_strided((2, 3, 4, 5), (40, 6, 3, 1))
    yield "four dimensions, 3d", logits(2, 3, 4, 5)[:, :, 0]


ALONG = {
    "sharmix": sharmix.sharmix,
    "orders above 2": lambda z, dim: sharmix.sharmix(z, 3.0, 3.0, dim=dim),
    "entmax": lambda z, dim: sharmix.entmax(z, dim=dim),
    "sparsemax": sharmix.sparsemax,
}


@pytest.mark.usefixtures("each_implementation")
@pytest.mark.parametrize("dtype", [torch.float64, pytest.param(torch.bfloat16, marks=pytest.mark.medium)], ids=str)
def test_a_map_has_the_strides_of_softmax_along_any_dimension(dtype):
    with every_case() as case:
        for layout, z in layouts():
            for dim in (-1, *range(z.dim())):
                for name, function in ALONG.items():
                    with case(map=name, layout=layout, dim=dim):
                        z = z.to(dtype)
                        p = function(z, dim=dim)
                        assert p.stride() == torch.softmax(z, dim).stride()
                        moved = z.movedim(dim, -1).contiguous()
                        torch.testing.assert_close(p, function(moved, dim=-1).movedim(-1, dim), rtol=0, atol=1e-12)


@pytest.mark.usefixtures("each_implementation")
@for_every("layout, z", layouts(), function=LOSSES)
def test_the_layout_of_logits_changes_no_loss_and_no_gradient(layout, z, function):
    found, expected = (value_and_gradient(function, leaf) for leaf in (z, z.contiguous().clone()))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


# Soft targets in half precision. A correctly rounded row sums to 1 within the rounding of one number, 2^-8 in bfloat16:
# the sum of rounding errors, each at most 2^-8 of its own number, is at most 2^-8 of their sum.


@pytest.mark.parametrize("given", [torch.bfloat16, torch.float16, torch.float32, torch.float64], ids=str)
@for_every(
    "row, named",
    (
        ([0.5, 0.6, 0.0], "sum"),
        ([0.5, 0.52, 0.0], "sum"),
        ([0.5, 0.48, 0.0], "sum"),
        ([0.0, 0.0, 0.0], "sum"),
        ([1.0, 0.5, -0.5], "-0.5"),
    ),
)
def test_a_row_that_is_no_distribution_is_refused_in_any_precision(given, row, named):
    with pytest.raises(ValueError, match=named):
        sharmix.fenchel_young_loss(torch.zeros(1, 3), torch.tensor([row], dtype=given))


@for_every(name=NAMES)
def test_an_index_to_ignore_goes_with_class_indices_alone(name):
    """As in cross_entropy: beside probabilities it would do nothing."""
    z = logits()
    with pytest.raises(ValueError, match="ignore_index"):
        build(name).loss(z, soft_targets(z), ignore_index=1)


# Nothing to compute: no row that counts, no dimension, no class.


IGNORED = torch.full((3,), -100)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@for_every("z, y", [(logits(3, 4), IGNORED), (logits(0, 4), IGNORED[:0]), (logits(0, 4), logits(0, 4))], name=NAMES)
def test_the_mean_over_no_rows_is_nan_with_gradient_zero(smoothing, z, y, name):
    """The contract test has this of class indices; here also learned orders, smoothed labels and soft targets."""
    z, act = z.requires_grad_(), build(name)
    mean = act.loss(z, y, **({} if y.is_floating_point() else {"label_smoothing": smoothing}))
    assert mean.isnan()
    for gradient in torch.autograd.grad(mean, [z, *act.parameters()]):
        assert (gradient == 0).all()


@for_every(dtype=(torch.float64, torch.bfloat16), function=ALONG)
def test_one_number_is_one_class_as_for_softmax(dtype, function):
    z = torch.tensor(0.5, dtype=dtype, requires_grad=True)
    for dim in (-1, 0):
        p = function(z, dim=dim)
        assert p.shape == ()
        assert p.dtype == dtype
        assert p == torch.softmax(z, dim) == 1
        assert torch.autograd.grad(p, z)[0] == 0
    with pytest.raises(IndexError):
        function(z, dim=1)


# What no map takes. torch's softmax takes nested tensors; of all the others it refuses the same.


def nested(layout):
    return torch.nested.nested_tensor([logits(2, 4), logits(3, 4)], layout=layout)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
def test_tensors_that_are_not_dense_numbers_are_refused_with_what_to_use_instead():
    z, target = logits(), torch.tensor([0, 1, 2])
    refused = {
        "nested, strided": (nested(torch.strided), "to_padded_tensor"),
        "nested, jagged": (nested(torch.jagged), "to_padded_tensor"),
        "sparse": (z.to_sparse(), r"torch.sparse_coo; convert it with .to_dense\(\)"),
        "complex": (z.cfloat(), r"torch.complex64; convert it with .float\(\)"),
        "integer": (z.long(), r"torch.int64; convert it with .float\(\)"),
        "float8": (z.to(torch.float8_e4m3fn), r"torch.float8_e4m3fn; convert it with .float\(\)"),
    }
    with every_case() as case:
        for name, (tensor, message) in refused.items():
            for function in (sharmix.sharmix, sharmix.alpha_relu, sharmix.Entmax()):
                with case(tensor=name, function=function), pytest.raises(TypeError, match=message):
                    function(tensor)
            with case(loss=name), pytest.raises(TypeError, match=message):
                sharmix.sparsemax_loss(tensor, target)
    padded = torch.nested.to_padded_tensor(nested(torch.strided), -torch.inf)
    p = sharmix.sharmix(padded, masked_rows="zeros")
    assert (p.sum(-1).round(decimals=9) == torch.tensor([[1, 1, 0], [1, 1, 1]])).all()


# Programs that leave Python: torch.export and torch.jit.trace, saved and loaded.


PROGRAMS = {  # how one is made, saved and loaded
    "exported": (torch.export.export, torch.export.save, lambda file: torch.export.load(file).module()),
    "traced": (torch.jit.trace, torch.jit.save, torch.jit.load),
}


@pytest.mark.medium
@pytest.mark.filterwarnings("ignore:.*torch.jit", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize(("make", "save", "load"), PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize(
    "name", [name if name == "sharmix_learned" else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
)
def test_a_program_gives_the_same_after_it_was_saved_and_loaded(name, make, save, load):
    z, other = logits(dtype=torch.float32), -2 * logits(dtype=torch.float32)
    act, ignoring = trained_a_little(name), labels(z).index_fill(0, torch.tensor([0]), -100)
    with every_case() as case:
        for module, arguments, others in (
            (act, (z,), (other,)),
            (sharmix.FenchelYoungLoss(act), (z, labels(z)), (other, ignoring)),
        ):
            with case(module=type(module).__name__):
                file = io.BytesIO()
                save(make(module, arguments), file)
                file.seek(0)
                torch.testing.assert_close(load(file)(*others), module(*others))
