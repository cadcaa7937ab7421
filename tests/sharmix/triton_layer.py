"""The output layer's kernels on the CPU, by Triton's interpreter, against float64 products of the same logits.

Triton reads `TRITON_INTERPRET` when it is imported, so `test_triton.py` runs this file in a process of its own:
`TRITON_INTERPRET=1 python -m pytest tests/sharmix/triton_layer.py`.
"""

import itertools
import math

import pytest
import torch

import sharmix
from sharmix import _layer_in_blocks, _linear_loss
from sharmix._operators.triton import layer, solving, supports
from tests.sharmix.cases import every_case
from tests.sharmix.interpreter import patch_the_language_once_a_launch  # noqa: F401 (a fixture)

pytestmark = pytest.mark.filterwarnings("ignore")  # the interpreter's own, on NaN and on NumPy's scalars
CLASSES, FEATURES = 120, 20
DIGITS, DIGITS_OF_HALF = 1e-6, 1e-2  # of the largest entry; half precision rounds p − y in dense rows


@pytest.fixture(autouse=True)
def small_programs(monkeypatch):
    monkeypatch.setattr(_linear_loss, "backend", lambda device: "triton")
    for name, value in {"_PIECE": 8, "_ROOMS": 0, "_TILES": {}, "_TILES_OF_HALF": (16, 32, 32)}.items():
        monkeypatch.setattr(layer, name, value)
    monkeypatch.setattr(solving, "_LANES", 128)


def problem(rows=9, classes=CLASSES, scale=4.0, dtype=torch.float32, frequent=0):
    """Rows whose supports are few classes, more, or all; `frequent` classes are in every support."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(rows, FEATURES, generator=generator)
    weight = scale / math.sqrt(FEATURES) * torch.randn(classes, FEATURES, generator=generator)
    bias = 0.1 * torch.randn(classes, generator=generator)
    targets = torch.randint(classes, (rows,), generator=generator)
    hidden[1::4] *= 0.02
    hidden[2::4] *= 0.5
    targets[3::5] = -100
    if frequent:
        hidden[:, 0] = 1
        weight[:frequent], weight[:frequent, 0] = 0, 3 * scale
    return [tensor.to(dtype).requires_grad_() for tensor in (hidden, weight, bias)], targets


def computed(monkeypatch, tensors, targets, orders=(1.25, 1.5, 1.0), room=32, chunk=4, **options):
    """The loss and its gradients by layer and learned orders; with `room` 0 by dense products."""
    size = chunk * len(tensors[1]) * tensors[0].element_size()
    monkeypatch.setattr(_layer_in_blocks, "_CHUNK_BYTES", size)
    monkeypatch.setattr(supports.Supports, "room", lambda self, classes: room)
    loss = sharmix.linear_fenchel_young_loss(*tensors, targets, *orders, **options)
    learned = [order for order in orders if isinstance(order, torch.Tensor)]
    return loss.detach(), *torch.autograd.grad(loss, [part for part in tensors if part is not None] + learned)


def expected(tensors, targets, orders=(1.25, 1.5, 1.0), **options):
    """The same in float64, but of the logits that the kernels read; and the error p − y."""
    hidden, weight, bias = tensors
    parts = _layer_in_blocks.logits_in_parts(hidden, weight, bias, widens=False)
    logits = torch.cat([part.double() for _, part in parts]).requires_grad_()
    learned = [order.detach().double().requires_grad_() for order in orders if isinstance(order, torch.Tensor)]
    loss = sharmix.fenchel_young_loss(logits, targets, *(learned or orders), **options)
    error, *slopes = torch.autograd.grad(loss, [logits, *learned])
    by_bias = [] if bias is None else [error.sum(0)]
    return (loss.detach(), error @ weight.double(), error.T @ hidden.double(), *by_bias, *slopes), error


def assert_close(found, true, digits=DIGITS):
    for mine, theirs in zip(found, true, strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=0, atol=digits * max(theirs.abs().max().item(), 1e-3))


def test_gradients_are_those_of_dense_products(monkeypatch):
    tensors, targets = problem()
    with every_case() as case:
        for orders, (room, smoothing) in itertools.product(
            [(1.25, 1.5, 2.0), (1.3, 1.6, 2.0), (1.0, 1.0, 1.0)], [(32, 0.0), (128, 0.1), (0, 0.0), (0, 0.1)]
        ):
            with case(orders=orders, room=room, smoothing=smoothing):
                options = {"label_smoothing": smoothing, "reduction": "sum" if smoothing else "mean"}
                found = computed(monkeypatch, tensors, targets, orders, room, **options)
                assert_close(found, expected(tensors, targets, orders, **options)[0])
    sizes = expected(tensors, targets)[1].count_nonzero(-1)
    assert sizes.min() == 0  # an ignored row
    assert sizes.max() == CLASSES  # more than there is room for


def test_the_same_bits_again_and_untouched_classes_are_zero(monkeypatch):
    tensors, targets = problem(rows=12, frequent=3)
    once, again = (computed(monkeypatch, tensors, targets, (2.0, 2.0, 1.0)) for _ in range(2))
    assert all(map(torch.equal, once, again))
    true, error = expected(tensors, targets, (2.0, 2.0, 1.0))
    assert_close(once, true)
    touched = error.count_nonzero(0)
    assert touched.max() > layer._PIECE  # a class of several pieces
    assert not once[2][touched == 0].any()
    sparse = computed(monkeypatch, tensors, targets, (2.0, 2.0, 1.0), sparse_grad=True)[2].coalesce()
    assert sparse.indices()[0].tolist() == touched.nonzero().squeeze(1).tolist()
    assert torch.equal(sparse.to_dense(), once[2])


def test_learned_orders_get_their_slopes(monkeypatch):
    tensors, targets = problem()
    orders = [torch.tensor(value, requires_grad=True) for value in (1.3, 1.6, 2.0)]
    for room in (32, 0):
        found = computed(monkeypatch, tensors, targets, orders, room, label_smoothing=0.1)
        true, _ = expected(tensors, targets, orders, label_smoothing=0.1)
        assert_close(found[:4], true[:4])
        assert_close(found[4:], true[4:], 1e-5)


def test_tensors_that_the_host_reads_are_treated_as_numbers(monkeypatch):
    tensors, targets = problem()
    orders = [torch.tensor(value, requires_grad=True) for value in (1.75, 1.25, 1.0)]  # float32 is not enough
    assert_close(computed(monkeypatch, tensors, targets, orders, 128), expected(tensors, targets, orders)[0])


def test_orders_get_no_gradient_from_smoothed_targets_of_which_no_row_counts(monkeypatch):
    tensors, targets = problem()
    orders = [torch.tensor(value, requires_grad=True) for value in (1.3, 1.6, 2.0)]
    found = computed(monkeypatch, tensors, torch.full_like(targets, -100), orders, label_smoothing=0.1)
    assert found[0].isnan()
    assert not any(slope.any() for slope in found[1:])


def test_modules_pass_gradients_on_to_their_parameters(monkeypatch):
    tensors, targets = problem()
    act = sharmix.Entmax(alpha=1.5, learned=True)
    act.unused = torch.nn.Parameter(torch.zeros(2))
    monkeypatch.setattr(supports.Supports, "room", lambda self, classes: 32)
    mine = torch.autograd.grad(act.linear_loss(*tensors, targets), [*tensors, *act.parameters()])
    theirs = torch.autograd.grad(
        act.loss(torch.nn.functional.linear(*tensors), targets), [*tensors, *act.parameters()], materialize_grads=True
    )
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_single(monkeypatch, dtype):
    tensors, targets = problem(dtype=dtype)
    for room in (128, 0):
        assert_close(computed(monkeypatch, tensors, targets, room=room), expected(tensors, targets)[0], DIGITS_OF_HALF)


def test_long_rows_without_a_bias_are_read_block_by_block(monkeypatch):
    for module, name in ((solving, "_WHOLE"), (solving, "_BLOCK"), (layer, "_BLOCK")):
        monkeypatch.setattr(module, name, 64)
    (hidden, weight, _), targets = problem()
    for room in (32, 0):
        found = computed(monkeypatch, (hidden, weight, None), targets, room=room)
        assert_close(found, expected((hidden, weight, None), targets)[0])


@pytest.mark.parametrize("room", [32, 128, 0])
def test_a_label_that_is_no_class_makes_its_row_nan(monkeypatch, room):
    monkeypatch.setattr(_linear_loss, "may_read", lambda values: False)
    tensors, targets = problem()
    targets[1] = CLASSES
    loss, by_hidden, by_weight, by_bias = computed(monkeypatch, tensors, targets, room=room)
    assert loss.isnan()
    assert by_weight.isnan().all()
    assert by_bias.isnan().all()
    assert by_hidden[1].isnan().all()
    assert by_hidden[torch.arange(len(targets)) != 1].isfinite().all()


def test_only_what_is_wanted_is_computed(monkeypatch):
    everything, targets = problem()
    true, _ = expected(everything, targets)
    monkeypatch.setattr(supports.Supports, "room", lambda self, classes: 32)
    for wanted in range(3):
        tensors = [tensor.detach().requires_grad_(place == wanted) for place, tensor in enumerate(everything)]
        loss = sharmix.linear_fenchel_young_loss(*tensors, targets)
        assert_close(torch.autograd.grad(loss, tensors[wanted]), true[1 + wanted : 2 + wanted])
    with torch.no_grad():
        assert_close([sharmix.linear_fenchel_young_loss(*everything, targets)], true[:1])


def test_supports_of_one_step_choose_the_way_of_the_next(monkeypatch):
    (hidden, weight, _), targets = problem(classes=8000)
    weight, used = weight.detach(), []
    for kind in (layer._SparseGradients, layer._DenseGradients):
        monkeypatch.setattr(kind, "add", lambda self, chunk, add=kind.add: (used.append(type(self)), add(self, chunk)))
    hidden.data[1::4] *= 50
    for _ in range(2):
        sharmix.linear_fenchel_young_loss(hidden, weight, None, targets, 2.0, 2.0)
    assert used == [layer._DenseGradients, layer._SparseGradients]
    known = supports.supports_of(weight)
    room_for = supports.Supports.room
    for counts, classes, room in (([10] * 100, 8000, 32), ([10] * 95 + [8000] * 5, 8000, 32), ([50] * 9, 10_000, 128)):
        known.counts.zero_()[: len(counts)] = torch.tensor(counts, dtype=torch.int32)
        assert room_for(known, classes) == room
    for counts, classes in (([], 8000), ([10] * 100, 1900), ([10] * 80 + [1100] * 20, 10**6)):
        known.counts.zero_()[: len(counts)] = torch.tensor(counts, dtype=torch.int32)
        assert room_for(known, classes) == 0
