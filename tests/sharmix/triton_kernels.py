"""The CUDA kernels: compiled, on a GPU, as `make gpu` runs this file; or on the CPU, by Triton's interpreter.

Triton reads `TRITON_INTERPRET` when it is imported, so `test_triton.py` runs this file in a process of its own:
`TRITON_INTERPRET=1 python -m pytest tests/sharmix/triton_kernels.py`.
"""

import contextlib
import itertools

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import sharmix
from sharmix import _arguments, functional
from sharmix._operators import autograd, backend, cpu
from sharmix._operators import orders as orders_module
from sharmix._operators.triton import implementation, solving, supports
from tests.sharmix import accuracy, doors
from tests.sharmix.cases import assert_errors_within, every_case, for_every
from tests.sharmix.interpreter import INTERPRETED, patch_the_language_once_a_launch  # noqa: F401 (a fixture)

DEVICE = "cpu" if INTERPRETED else "cuda"
ORDERS = [(1.25, 1.5), (1.3, 1.4), (2.0, 2.0), (1.0, 1.7), (1.1, 1.9)]
SIZES = [1, 5, 100] if INTERPRETED else [1, 5, 100, 1000, 2048, 2049, 32000, 100_000]  # the last is solved together
# The constants of `solving` by which a row of a hundred classes is solved as longer rows are.
WAYS = {
    "in registers": {},
    "by lanes and in registers": {"SHORT": 4, "_LANES": 32, "ROOM": 16},
    "by lanes and in blocks": {"SHORT": 4, "_LANES": 32, "_WHOLE": 4, "_BLOCK": 32},
    "in blocks": {"SHORT": 4, "_LANES": 0, "_WHOLE": 4, "_BLOCK": 32},
}
SAMPLES = 4 if INTERPRETED else 20  # of each size
DIGITS = {torch.float32: {"rtol": 1e-4, "atol": 2e-6}, torch.float64: {"rtol": 1e-9, "atol": 1e-12}}
HALF_DIGITS = {"rtol": 2e-2, "atol": 2e-2}
pytestmark = pytest.mark.filterwarnings("ignore")  # the interpreter's own, on NaN and on NumPy's scalars
on_a_gpu = pytest.mark.skipif(INTERPRETED, reason="a GPU alone has this")
in_every_way = pytest.mark.parametrize("way", WAYS.values() if INTERPRETED else [{}], ids=WAYS if INTERPRETED else None)


@pytest.fixture(autouse=True)
def select_triton(monkeypatch):
    """On a GPU the library selects the kernels by itself."""
    if not INTERPRETED:
        assert sharmix.backend(DEVICE) == "triton"
        return
    for module in (backend, functional):
        monkeypatch.setattr(module, "backend", lambda device="cpu": "torch" if backend.is_plain_torch() else "triton")
    monkeypatch.setattr(cpu, "kernel", None)


def go(way, monkeypatch):
    for name, value in way.items():
        monkeypatch.setattr(solving, name, value)
        monkeypatch.setattr(implementation, "_BACKWARD_BLOCK", 32)


def digits(dtype):
    return DIGITS.get(dtype, HALF_DIGITS)


def computed(z, y, q, r):
    orders = [torch.tensor(value, requires_grad=True, device=DEVICE) for value in (q, r)]
    z = z.detach().requires_grad_()
    p, loss = sharmix.sharmix(z, *orders), sharmix.fenchel_young_loss(z, y, *orders)
    weights = torch.linspace(-1, 1, z.numel(), device=DEVICE).reshape(z.shape).to(z.dtype)
    of_map, of_loss = (torch.autograd.grad(total, [z, *orders]) for total in ((p * weights).sum(), loss))
    return [tensor.float() for tensor in (p, loss, *of_map, *of_loss)]


def assert_agrees_with_plain_torch(classes, dtype, q, r):
    z = (2 * torch.randn(3, classes, generator=torch.Generator().manual_seed(0))).to(DEVICE, dtype)
    y = torch.tensor([0, -100, classes - 1], device=DEVICE)
    found = computed(z, y, q, r)
    with sharmix.plain_torch():
        expected = computed(z.float(), y, q, r)
    torch.testing.assert_close(found, expected, **digits(dtype))


def test_the_triton_kernels_are_called(monkeypatch):
    class Answered(Exception):
        pass

    def answer(*_):
        raise Answered

    for name in ("solve", "class_loss"):
        monkeypatch.setattr(implementation, name, answer)
    z = torch.zeros(2, 3, device=DEVICE)
    for orders in ((1.25, 1.5), (3.0, 3.0), (1.75, 1.25)):
        for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
            with pytest.raises(Answered):
                sharmix.sharmix(z.to(dtype), *orders)
            with pytest.raises(Answered):
                sharmix.fenchel_young_loss(z.to(dtype), torch.zeros(2, device=DEVICE).long(), *orders)


@pytest.mark.parametrize("dtype", [*accuracy.GOALS, *accuracy.HALF_PRECISION], ids=str)
def test_error_against_fifty_digits(dtype):
    truncates = INTERPRETED and dtype == torch.bfloat16  # which rounds no more, where a GPU rounds to the nearest
    goal = accuracy.GOALS.get(dtype, 2.0 if truncates else 1.0)
    error = accuracy.absolute_error if dtype in accuracy.GOALS else accuracy.rounding_error
    cases = [case for size in (1, 2, 3, 10, 100) for case in accuracy.sample(size, SAMPLES)]
    large = [accuracy.Case(1.25, 1.5, 1000, 2.0, 0), accuracy.Case(1.3, 1.5, 32_000, 2.0, 1)]
    assert_errors_within({case: error(case, dtype, DEVICE) for case in cases + large}, goal)


def gradients(z, y, weights, orders, way):
    """The gradients of the losses of rows, and of a map, by logits and orders, each over the largest of its row."""
    z = z.detach().requires_grad_()
    orders = [order.detach().requires_grad_() for order in orders] if way == "learned" else orders
    inputs = [z, *orders] if way == "learned" else [z]
    losses = sharmix.fenchel_young_loss(z, y, *orders, reduction="sum")
    return [torch.autograd.grad(total, inputs) for total in (losses, (sharmix.sharmix(z, *orders) * weights).sum())]


def worst_errors(found, exact):
    return [
        max(
            ((one.cpu().double() - other).abs().amax(-1) / other.abs().amax(-1).clamp_min(1)).max().item()
            for one, other in zip(of_one, of_other, strict=True)
        )
        for of_one, of_other in zip(found, exact, strict=True)
    ]


def assert_small_errors(q, r, scale, kind):
    """Against float64 on the CPU: 1e-6 of a loss, 2e-6 of a map, by the logits and by learned orders."""
    z = scale * torch.randn(3, 100, generator=torch.Generator().manual_seed(1))
    z[0, :3], z[2, 5:50] = z[0].max(), -torch.inf
    y, weights = torch.tensor([0, 1, 99]), torch.linspace(-1, 1, 100)
    orders = [torch.full((3, 1), value) for value in (q, r)] if kind == "learned" else (q, r)
    given = z.to(DEVICE), y.to(DEVICE), weights.to(DEVICE)
    found = gradients(*given, [order.to(DEVICE) for order in orders] if kind == "learned" else orders, kind)
    with sharmix.plain_torch():
        wide = [order.double() for order in orders] if kind == "learned" else orders
        exact = gradients(z.double(), y, weights.double(), wide, kind)
    of_loss, of_map = worst_errors(found, exact)
    assert of_loss <= 1e-6
    assert of_map <= 2e-6


@in_every_way
def test_errors_of_gradients(monkeypatch, way):
    go(way, monkeypatch)
    few, others = [(1.25, 1.5), (1.3, 1.4)], [(1.0, 1.7), (1.05, 1.2), (4 / 3, 1.5), (1.5, 3.0), (2.0, 2.0)]
    cases = [(*orders, 2.0, kind) for orders in few for kind in ("numbers", "learned")]
    if not way:
        cases += [(*orders, scale, "numbers") for orders in few + others for scale in (1e-3, 1e4)]
    with every_case() as case:
        for q, r, scale, kind in cases:
            with case(q=q, r=r, scale=scale, kind=kind):
                assert_small_errors(q, r, scale, kind)


@for_every(q=(1.6, 1.79, 1.95))
def test_errors_of_gradients_of_classes_that_have_just_joined(q):
    """For q between 1.5 and 2 they rise like p^(2−q), and single ones are wrong by up to a hundredth of the largest."""
    z, weights = 0.01 * torch.randn(3, 1000, generator=torch.Generator().manual_seed(1)), torch.linspace(-1, 1, 1000)
    given = z.to(DEVICE), torch.zeros(3).long().to(DEVICE), weights.to(DEVICE)
    _, (found,) = gradients(*given, (q, q), "numbers")
    with sharmix.plain_torch():
        _, (exact,) = gradients(z.double(), torch.zeros(3).long(), weights.double(), (q, q), "numbers")
    wrong = (found.cpu() - exact).abs() / exact.abs().amax(-1, keepdim=True).clamp_min(1)
    assert wrong.max() <= 1e-2
    assert wrong.mean(-1).max() <= 2e-6


@for_every("q, r", [(1.5, 12.0), (3.0, 3.0), (1.75, 1.25)], kind=["numbers", "learned"])
def test_errors_of_gradients_where_float32_is_not_enough(q, r, kind):
    assert_small_errors(q, r, 2.0, kind)


@in_every_way
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_map_and_loss_are_those_of_plain_torch(monkeypatch, dtype, way):
    go(way, monkeypatch)
    of_rows = [([[1.25], [1.3], [2.0]], [[1.5], [1.4], [2.0]])]
    if dtype == torch.bfloat16:
        of_rows.append(([[1.25], [3.0], [1.75]], [[1.5], [3.0], [1.25]]))
    with every_case() as case:
        for classes, (q, r) in itertools.product(SIZES if not way else [100], [*ORDERS, *of_rows]):
            with case(classes=classes, q=q, r=r):
                assert_agrees_with_plain_torch(classes, dtype, q, r)


class PassesThrough(TorchDispatchMode):
    """A mode that changes nothing, for which torch must see operators."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **kwargs or {})


FLOATS, OPERATORS = [torch.float32, torch.float64, torch.bfloat16], doors.MAPS | doors.CLASS_LOSSES


@pytest.mark.parametrize("dtype", [*FLOATS, torch.float16], ids=str)
@for_every(within=(contextlib.nullcontext, PassesThrough), name=[*doors.EVERYTHING])
def test_every_map_and_loss_is_that_of_plain_torch_by_itself_and_by_the_operators(dtype, within, name):
    door, z = doors.EVERYTHING[name], doors.logits(dtype=dtype).to(DEVICE)
    with within():
        found = doors.value_and_gradient(door, z)
    with sharmix.plain_torch():
        expected = doors.value_and_gradient(door, z)
    torch.testing.assert_close(found, expected, **digits(dtype))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@for_every("q, r", [(1.25, 1.5), (1.3, 1.4), (3.0, 3.0), (1.75, 1.25)])
def test_orders_of_one_value_that_the_host_does_not_read(monkeypatch, reduction, q, r):
    monkeypatch.setattr(orders_module, "may_read", lambda values: False)
    monkeypatch.setattr(orders_module, "number_if_read", lambda order, logits: order)
    monkeypatch.setattr(autograd, "is_read", lambda order, logits: False)
    z, y = doors.logits(5, 100).float().to(DEVICE), torch.tensor([0, 3, -100, 99, 5], device=DEVICE)
    found, expected = [], []
    for kept, dtype in ((found, torch.float32), (expected, torch.float64)):
        own = [torch.tensor(one, device=DEVICE, dtype=dtype, requires_grad=True) for one in (q, r, 1.5)]
        wide = z.to(dtype).requires_grad_()
        with sharmix.plain_torch() if dtype == torch.float64 else contextlib.nullcontext():
            p = sharmix.sharmix(wide, *own)
            loss = sharmix.fenchel_young_loss(wide, y, *own, reduction=reduction)
            totals = p.square().sum(), loss.square().sum()
            kept += [p, loss, *(one for total in totals for one in torch.autograd.grad(total, [wide, *own]))]
    torch.testing.assert_close(found, [one.float() for one in expected], rtol=1e-4, atol=3e-6)


@in_every_way
@pytest.mark.parametrize("kind", ["numbers", "learned", "rough"])
def test_rows_that_are_undefined_spread_to_no_other(monkeypatch, way, kind):
    go(way, monkeypatch)
    orders = {"numbers": (1.25, 1.5), "learned": torch.tensor([1.25, 1.5], device=DEVICE), "rough": (3.0, 3.0)}[kind]
    rows = [[1.0, 2.0, 3.0], [1.0, torch.nan, 0.0], [-torch.inf] * 3, [-torch.inf, 1.0, 0.5], [torch.inf, 0, 0]]
    z = torch.tensor([[*row, *[min(row[0], -9.0)] * 60] for row in rows], device=DEVICE, requires_grad=True)
    p = sharmix.sharmix(z, *orders)
    assert p[[1, 2, 4]].isnan().all()
    assert p[3, 0] == 0
    torch.testing.assert_close(p[[0, 3]].sum(-1), torch.ones(2, device=DEVICE))
    y = torch.tensor([2, 0, 0, 0, -100], device=DEVICE)
    loss = sharmix.fenchel_young_loss(z, y, *orders, reduction="none")
    assert loss[3] == torch.inf
    assert loss[4] == 0
    assert loss[1:3].isnan().all()
    (of_sum,) = torch.autograd.grad(sharmix.fenchel_young_loss(z, y, *orders, reduction="sum"), z)
    for value, undefined, defined in ((p[:, :2], [1, 2, 4], [0, 3]), (loss, [1, 2], [0, 3, 4])):
        (gradient,) = torch.autograd.grad(value.sum(), z)
        assert gradient[undefined].isnan().all()
        assert gradient[defined].isfinite().all()
    torch.testing.assert_close(of_sum, gradient, equal_nan=True)


@in_every_way
def test_the_gradient_of_a_sum_is_zero_where_the_slopes_of_tied_rows_leave_single_precision(monkeypatch, way):
    go(way, monkeypatch)
    z = torch.zeros(2, 100, device=DEVICE, requires_grad=True)
    (gradient,) = torch.autograd.grad(sharmix.sharmix(z, 1.25, 20.0).sum(), z)
    assert not gradient.any()


@pytest.mark.parametrize("label", [-1, 7, 10**12])
def test_a_label_that_is_no_class_is_named_in_the_checked_mode(monkeypatch, label):
    monkeypatch.setattr(_arguments, "CHECKS_EVERYWHERE", True)
    z, y = torch.zeros(3, 7, device=DEVICE), torch.tensor([6, -100, label], device=DEVICE)
    with pytest.raises(ValueError, match=f"label {label} is out of range for 7 classes"):
        sharmix.fenchel_young_loss(z, y)


@in_every_way
@pytest.mark.parametrize("label", [-1, 100, 10**12])
def test_a_label_that_is_no_class_makes_its_row_nan(monkeypatch, way, label):
    go(way, monkeypatch)
    monkeypatch.setattr(implementation, "may_read", lambda values: False)
    z, y = doors.logits(3, 100).to(DEVICE, torch.float32), torch.tensor([6, -100, label], device=DEVICE)
    for orders in ((1.25, 1.5), (1.25, 20.0), torch.tensor([1.25, 1.5], device=DEVICE)):
        z.requires_grad_()
        losses = sharmix.fenchel_young_loss(z, y, *orders, reduction="none")
        mean = sharmix.fenchel_young_loss(z, y, *orders)
        assert losses[2].isnan() & mean.isnan()
        for loss in (losses[:2].sum() + losses[2], mean):
            (gradient,) = torch.autograd.grad(loss, z)
            assert gradient[2].isnan().all()
            assert gradient[:2].isfinite().all()


WRONG_ORDERS = [
    *((q, 1.5, 1.0) for q in (0.9, 1001.0, torch.nan)),
    *((1.25, r, 1.0) for r in (0.0, 200.0, torch.nan)),
    *((1.25, 1.5, temperature) for temperature in (0.0, torch.inf, torch.nan)),
]


@in_every_way
@pytest.mark.parametrize("wrong", WRONG_ORDERS, ids=str)
def test_an_order_out_of_its_range_makes_its_row_nan(monkeypatch, way, wrong):
    go(way, monkeypatch)
    z, y = doors.logits(2, 100).float().to(DEVICE).requires_grad_(), torch.tensor([0, 1], device=DEVICE)
    pairs = zip((1.25, 1.5, 1.0), wrong, strict=True)
    orders = [torch.tensor(pair, device=DEVICE, dtype=torch.float64).unsqueeze(-1) for pair in pairs]
    p, _, kept = implementation.solve(z.detach(), tuple(orders), True, True)
    assert p[0].isfinite().all()
    assert p[1].isnan().all()
    found = implementation.class_loss(z.detach(), y, tuple(orders), -100, "sum", "rows", "gradient")
    assert found[0].isnan()
    assert found[2][1].isnan().all()
    assert found[2][0].isfinite().all()
    by_logits, _ = implementation.map_backward(p, torch.ones_like(p), tuple(orders), "none", kept)
    assert by_logits[1].isnan().all()
    assert by_logits[0].isfinite().all()


def test_a_kept_gradient_is_multiplied_by_what_comes_in_and_a_loss_may_be_changed_in_place():
    z, y = doors.logits(3, 100).float().to(DEVICE).requires_grad_(), torch.tensor([0, 1, 2], device=DEVICE)
    (one,) = torch.autograd.grad(sharmix.fenchel_young_loss(z, y), z)
    loss = sharmix.fenchel_young_loss(z, y)
    for times in (3.0, 1.0, 5.0):
        (gradient,) = torch.autograd.grad(times * loss, z, retain_graph=True)
        torch.testing.assert_close(gradient, times * one)
    loss *= 2
    torch.testing.assert_close(torch.autograd.grad(loss, z)[0], 2 * one)


@on_a_gpu
@pytest.mark.parametrize("kind", ["numbers", "learned"])
def test_maps_and_losses_are_recorded_in_a_cuda_graph(kind):
    orders = torch.tensor([1.25, 1.5], device=DEVICE, requires_grad=True) if kind == "learned" else (1.25, 1.5)
    z, y = torch.zeros(3, 100, device=DEVICE, requires_grad=True), torch.tensor([0, 1, 2], device=DEVICE)

    def step():
        p, loss = sharmix.sharmix(z, *orders), sharmix.fenchel_young_loss(z, y, *orders)
        return p, loss, *torch.autograd.grad(loss + p.square().sum(), z)

    step()  # compiles the kernels
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = step()
    with torch.no_grad():
        z.copy_(doors.logits(3, 100))
    graph.replay()
    torch.testing.assert_close(recorded, step())


@on_a_gpu
def test_the_host_waits_for_no_map_or_loss():
    z = doors.logits(8, 100).float().to(DEVICE)
    for door in doors.EVERYTHING.values():
        doors.value_and_gradient(door, z)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for door in doors.EVERYTHING.values():
            doors.value_and_gradient(door, z)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@on_a_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_output_layer_with_sparse_products_has_the_gradients_of_dense_ones(dtype):
    generator = torch.Generator().manual_seed(0)
    hidden, weight = (
        torch.randn(rows, 256, generator=generator).to(DEVICE, dtype).requires_grad_() for rows in (512, 32_000)
    )
    y, layer = torch.arange(512, device=DEVICE), (hidden, weight)
    hidden.data *= 4 / 16  # logits have about the scale 4
    hidden.data[1::16] *= 0.01  # dense rows, which have no list; the sample of every second row has none
    for _ in range(2):  # the first step tells the second that most rows are sparse
        found = torch.autograd.grad(sharmix.linear_fenchel_young_loss(*layer, None, y), layer)
        torch.cuda.synchronize()
    assert supports.supports_of(weight).room(32_000)
    with sharmix.plain_torch():
        loss = sharmix.fenchel_young_loss(torch.nn.functional.linear(hidden, weight).double(), y)
        expected = torch.autograd.grad(loss, layer)
    for one, true in zip(found, expected, strict=True):
        assert (one - true).abs().max() <= (1e-5 if dtype == torch.float32 else 2e-2) * true.abs().max()
