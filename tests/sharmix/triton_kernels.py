"""The CUDA kernels on the CPU, by Triton's interpreter.

Triton reads `TRITON_INTERPRET` when it is imported, so `testcuda.py` runs this file in a process of its own:
`TRITON_INTERPRET=1 python -m pytest tests/sharmix/triton_interpreted.py`.
"""

import itertools

import pytest
import torch
from triton.language import core
from triton.runtime import interpreter

import sharmix
from sharmix import functional
from sharmix._operators import backend, cuda, cuda_long_rows, fast
from tests.sharmix.cases import every_case

ORDERS = [(1.25, 1.5), (1.3, 1.4), (2.0, 2.0), (1.0, 1.7), (1.1, 1.9)]
pytestmark = pytest.mark.filterwarnings("ignore")  # the interpreter's own, on NaN and on NumPy's scalars


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


def select_backend(monkeypatch, name):
    for module in (backend, functional):
        monkeypatch.setattr(module, "backend", lambda device="cpu": name)


@pytest.fixture(autouse=True)
def select_triton(monkeypatch):
    select_backend(monkeypatch, "triton")
    monkeypatch.setattr(backend, "_warn_once", lambda device: None)
    monkeypatch.setattr(fast, "_is_closed", lambda: True)


def computed(z, y, q, r):
    orders = [torch.tensor(value, requires_grad=True) for value in (q, r)]
    z = z.detach().requires_grad_()
    p, loss = sharmix.sharmix(z, *orders), sharmix.fenchel_young_loss(z, y, *orders)
    weights = torch.linspace(-1, 1, z.numel()).reshape(z.shape).to(z.dtype)
    of_map, of_loss = (torch.autograd.grad(total, [z, *orders]) for total in ((p * weights).sum(), loss))
    return [tensor.float() for tensor in (p, loss, *of_map, *of_loss)]


def assert_agrees_with_plain_torch(classes, dtype, q, r):
    z = (2 * torch.randn(3, classes, generator=torch.Generator().manual_seed(0))).to(dtype)
    y = torch.tensor([0, -100, classes - 1])
    found = computed(z, y, q, r)
    with pytest.MonkeyPatch.context() as patch:
        select_backend(patch, "torch")
        expected = computed(z.float(), y, q, r)
    digits = {"rtol": 1e-4, "atol": 2e-6} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 2e-2}
    torch.testing.assert_close(found, expected, **digits)


@pytest.mark.parametrize("module", [cuda, cuda_long_rows])
def test_the_triton_kernels_are_called(monkeypatch, module):
    class Answered(Exception):
        pass

    def answer(*_):
        raise Answered

    monkeypatch.setattr(cuda_long_rows, "_LONG", 2 if module is cuda_long_rows else 10**9)
    for name in ("solve", "class_loss"):
        monkeypatch.setattr(module, name, answer)
    z = torch.zeros(2, 3)
    with pytest.raises(Answered):
        sharmix.sharmix(z)
    with pytest.raises(Answered):
        sharmix.fenchel_young_loss(z, torch.zeros(2).long())


def test_many_programs_for_a_row_find_the_same(monkeypatch):
    monkeypatch.setattr(cuda_long_rows, "_LONG", 2)
    monkeypatch.setattr(cuda_long_rows, "_SPAN", 16)
    with every_case() as case:
        for dtype, (q, r) in itertools.product([torch.float32, torch.bfloat16], ORDERS[:4]):
            with case(dtype=dtype, q=q, r=r):
                assert_agrees_with_plain_torch(40, dtype, q, r)


@pytest.mark.parametrize("long", [10**9, 2])
def test_an_ignored_row_may_hold_anything_and_one_row_needs_no_batch(monkeypatch, long):
    monkeypatch.setattr(cuda_long_rows, "_LONG", long)
    z, q = torch.tensor([[1.0, 0.5, -1.0], [torch.nan, 0.0, 1.0]]), torch.tensor(1.3, requires_grad=True)
    of_both = sharmix.fenchel_young_loss(z, torch.tensor([1, -100]), q)
    of_one = sharmix.fenchel_young_loss(z[0], torch.tensor(1), q)
    torch.testing.assert_close(of_both, of_one)
    torch.testing.assert_close(torch.autograd.grad(of_both, q), torch.autograd.grad(of_one, q))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_map_and_loss_are_those_of_plain_torch(monkeypatch, dtype):
    with every_case() as case:
        for classes, (q, r) in itertools.product([1, 5, 100], ORDERS):
            with case(block="a row in one", classes=classes, q=q, r=r):
                assert_agrees_with_plain_torch(classes, dtype, q, r)
        in_one_block = [cuda._blocks(torch.zeros(1, classes, dtype=dtype)) for classes in (1, 5)]
        monkeypatch.setattr(cuda, "_LARGEST_BLOCK", 64)
        # Rows of 1 and 5 classes have the same launch under the lower limit.
        assert [cuda._blocks(torch.zeros(1, classes, dtype=dtype)) for classes in (1, 5)] == in_one_block
        for q, r in ORDERS:
            with case(block="a row in several", classes=100, q=q, r=r):
                assert_agrees_with_plain_torch(100, dtype, q, r)


@pytest.mark.parametrize("long", [10**9, 2])
def test_rows_that_are_undefined_spread_to_no_other(monkeypatch, long):
    monkeypatch.setattr(cuda_long_rows, "_LONG", long)
    z = torch.tensor(
        [[1.0, 2.0, 3.0], [1.0, torch.nan, 0.0], [-torch.inf] * 3, [-torch.inf, 1.0, 0.5], [torch.inf, 0, 0]]
    )
    p = sharmix.sharmix(z)
    assert p[[1, 2, 4]].isnan().all()
    assert p[3, 0] == 0
    torch.testing.assert_close(p[[0, 3]].sum(-1), torch.ones(2))
    loss = sharmix.fenchel_young_loss(z, torch.tensor([2, 0, 0, 0, -100]), reduction="none")
    assert loss[3] == torch.inf
    assert loss[4] == 0
    assert loss[1:3].isnan().all()
