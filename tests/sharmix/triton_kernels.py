"""The CUDA kernels: compiled, on a GPU, as `make gpu` runs this file; or on the CPU, by Triton's interpreter.

Triton reads `TRITON_INTERPRET` when it is imported, so `test_triton.py` runs this file in a process of its own:
`TRITON_INTERPRET=1 python -m pytest tests/sharmix/triton_kernels.py`.
"""

import itertools
import os

import pytest
import torch
from triton.language import core
from triton.runtime import interpreter

import sharmix
from sharmix import functional
from sharmix._operators import backend, cpu
from sharmix._operators.triton import implementation
from tests.sharmix import accuracy, doors
from tests.sharmix.cases import assert_errors_within, every_case

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
ORDERS = [(1.25, 1.5), (1.3, 1.4), (2.0, 2.0), (1.0, 1.7), (1.1, 1.9)]
SIZES = [1, 5, 100] if INTERPRETED else [1, 5, 100, 1000, 2048, 2049, 32000, 100_000]  # the last is solved together
# The constants of `implementation` with which rows of a hundred classes are solved as longer ones are.
WAYS = {
    "in registers": {},
    "by lanes, and in registers": {"_SHORT": 4, "_LANES": 32, "_ROOM": 16},
    "by lanes, and in blocks": {"_SHORT": 4, "_LANES": 32, "_WHOLE": 4, "_BLOCK": 32, "_BACKWARD_BLOCK": 16},
    "in blocks": {"_SHORT": 4, "_LANES": 0, "_WHOLE": 4, "_BLOCK": 32, "_BACKWARD_BLOCK": 32, "_WIDE_BLOCK": 32},
}
SAMPLES = 4 if INTERPRETED else 20  # of each size
DIGITS = {torch.float32: {"rtol": 1e-4, "atol": 2e-6}, torch.float64: {"rtol": 1e-9, "atol": 1e-12}}
HALF_DIGITS = {"rtol": 2e-2, "atol": 2e-2}
pytestmark = pytest.mark.filterwarnings("ignore")  # the interpreter's own, on NaN and on NumPy's scalars
on_a_gpu = pytest.mark.skipif(INTERPRETED, reason="a GPU alone has this")


@pytest.fixture(autouse=True, scope="module")
def patch_the_language_once_a_launch():
    """The interpreter patches Triton's language again at each call of a function of a kernel: half of its time."""
    patch_lang = interpreter._patch_lang

    def patch_unless_patched(function):
        languages = (interpreter.tl, core)
        return patch_lang(function) if any(core.is_builtin(language.load) for language in languages) else None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_patch_lang", patch_unless_patched)
        yield


@pytest.fixture(autouse=True)
def select_triton(monkeypatch):
    """On a GPU the library selects the kernels by itself."""
    if not INTERPRETED:
        assert sharmix.backend(DEVICE) == "triton"
        return
    for module in (backend, functional):
        monkeypatch.setattr(module, "backend", lambda device="cpu": "torch" if backend.is_plain_torch() else "triton")
    monkeypatch.setattr(backend, "_warn_once", lambda device: None)
    monkeypatch.setattr(cpu, "kernel", None)


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


@pytest.mark.parametrize("module", [cuda, cuda_long_rows])
def test_the_triton_kernels_are_called(monkeypatch, module):
    class Answered(Exception):
        pass

    def answer(*_):
        raise Answered

    monkeypatch.setattr(cuda_long_rows, "_LONG", 2 if module is cuda_long_rows else 10**9)
    for name in ("solve", "class_loss"):
        monkeypatch.setattr(module, name, answer)
    z = torch.zeros(2, 3, device=DEVICE)
    with pytest.raises(Answered):
        sharmix.sharmix(z)
    with pytest.raises(Answered):
        sharmix.fenchel_young_loss(z, torch.zeros(2, device=DEVICE).long())


@pytest.mark.parametrize("dtype", [*accuracy.GOALS, *accuracy.HALF_PRECISION], ids=str)
def test_error_against_fifty_digits(dtype):
    truncates = INTERPRETED and dtype == torch.bfloat16  # which rounds no more, where a GPU rounds to the nearest
    goal = accuracy.GOALS.get(dtype, 2.0 if truncates else 1.0)
    error = accuracy.absolute_error if dtype in accuracy.GOALS else accuracy.rounding_error
    cases = [case for size in (1, 2, 3, 10, 100) for case in accuracy.sample(size, SAMPLES)]
    large = [accuracy.Case(1.25, 1.5, 1000, 2.0, 0), accuracy.Case(1.3, 1.5, 32_000, 2.0, 1)]
    assert_errors_within({case: error(case, dtype, DEVICE) for case in cases + large}, goal)


def test_many_programs_for_a_row_find_the_same(monkeypatch):
    monkeypatch.setattr(cuda_long_rows, "_LONG", 2)
    monkeypatch.setattr(cuda_long_rows, "_SPAN", 16)
    with every_case() as case:
        for dtype, (q, r) in itertools.product([torch.float32, torch.bfloat16], ORDERS[:4]):
            with case(dtype=dtype, q=q, r=r):
                assert_agrees_with_plain_torch(40, dtype, q, r)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_map_and_loss_are_those_of_plain_torch(monkeypatch, dtype):
    with every_case() as case:
        for classes, (q, r) in itertools.product(SIZES, ORDERS):
            with case(classes=classes, q=q, r=r):
                assert_agrees_with_plain_torch(classes, dtype, q, r)
        for name, classes in {"_SHORT": 32, "_BLOCK": 8, "_SEARCHED": 32}.items():
            monkeypatch.setattr(cuda, name, classes)
        for q, r in [*ORDERS, ([[1.25], [1.3], [2.0]], [[1.5], [1.4], [2.0]])]:
            with case(block="a row in several", classes=100, q=q, r=r):
                assert_agrees_with_plain_torch(100, dtype, q, r)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_every_map_and_loss_is_that_of_plain_torch(dtype):
    z = doors.logits(dtype=dtype).to(DEVICE)
    with every_case() as case:
        for name, door in doors.EVERYTHING.items():
            with case(door=name):
                found = doors.value_and_gradient(door, z)
                with sharmix.plain_torch():
                    expected = doors.value_and_gradient(door, z)
                torch.testing.assert_close(found, expected, **digits(dtype))


@pytest.mark.parametrize(("short", "long"), [(9, 10**9), (2, 10**9), (9, 2)])
def test_rows_that_are_undefined_spread_to_no_other(monkeypatch, short, long):
    monkeypatch.setattr(cuda, "_SHORT", short)
    monkeypatch.setattr(cuda_long_rows, "_LONG", long)
    rows = [[1.0, 2.0, 3.0], [1.0, torch.nan, 0.0], [-torch.inf] * 3, [-torch.inf, 1.0, 0.5], [torch.inf, 0, 0]]
    z = torch.tensor([[*row, *[min(row[0], -9.0)] * 6] for row in rows], device=DEVICE, requires_grad=True)
    p = sharmix.sharmix(z)
    assert p[[1, 2, 4]].isnan().all()
    assert p[3, 0] == 0
    torch.testing.assert_close(p[[0, 3]].sum(-1), torch.ones(2, device=DEVICE))
    y = torch.tensor([2, 0, 0, 0, -100], device=DEVICE)
    loss = sharmix.fenchel_young_loss(z, y, reduction="none")
    assert loss[3] == torch.inf
    assert loss[4] == 0
    assert loss[1:3].isnan().all()
    for value, undefined, defined in ((p[:, :2], [1, 2, 4], [0, 3]), (loss, [1, 2], [0, 3, 4])):
        (gradient,) = torch.autograd.grad(value.sum(), z)
        assert gradient[undefined].isnan().all()
        assert gradient[defined].isfinite().all()


@pytest.mark.parametrize("short", [256, 2048])
def test_the_gradient_of_a_sum_is_zero_where_the_slopes_of_tied_rows_leave_single_precision(monkeypatch, short):
    monkeypatch.setattr(cuda, "_SHORT", short)
    z = torch.zeros(2, 1000, device=DEVICE, requires_grad=True)
    (gradient,) = torch.autograd.grad(sharmix.sharmix(z, 1.25, 20.0).sum(), z)
    assert not gradient.any()


@pytest.mark.parametrize("label", [-1, 7, 10**12])
def test_a_label_that_is_no_class_is_named(label):
    z, y = torch.zeros(3, 7, device=DEVICE), torch.tensor([6, -100, label], device=DEVICE)
    with pytest.raises(ValueError, match=f"label {label} is out of range for 7 classes"):
        sharmix.fenchel_young_loss(z, y)


@on_a_gpu
def test_a_map_of_fixed_orders_is_recorded_in_a_cuda_graph():
    z = torch.zeros(3, 100, device=DEVICE)
    sharmix.sharmix(z)  # compiles the kernel
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        p = sharmix.sharmix(z)
    z.copy_(doors.logits(3, 100))
    graph.replay()
    torch.testing.assert_close(p, sharmix.sharmix(z))
