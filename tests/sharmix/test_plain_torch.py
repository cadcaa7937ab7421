"""`plain_torch` holds where it was asked for, and nowhere else: threads, tasks, generators, backward, compiled code."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest
import torch

import sharmix
from sharmix._operators import any_device, cpu

USUAL = sharmix.backend()


@pytest.fixture(autouse=True)
def usual_before_and_after():
    assert sharmix.backend() == USUAL
    yield
    assert sharmix.backend() == USUAL


@pytest.fixture
def calls(monkeypatch):
    """The names of implementations and of their functions, in the order of their calls."""
    seen = []

    def listed(module, name):
        function = getattr(module, name)
        label = f"{module.__name__.rpartition('.')[2]}.{name}"
        monkeypatch.setattr(module, name, lambda *given, **named: seen.append(label) or function(*given, **named))

    for module in (any_device, cpu):
        for name in ("solve", "map_backward", "class_loss", "class_loss_backward"):
            listed(module, name)
    return seen


def in_a_thread(function):
    """What the function returns in a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def test_nested_and_left_by_an_exception():
    with sharmix.plain_torch():
        with sharmix.plain_torch():
            assert sharmix.backend() == "torch"
        assert sharmix.backend() == "torch"
        with pytest.raises(KeyError), sharmix.plain_torch():
            raise KeyError
        assert sharmix.backend() == "torch"
    with pytest.raises(KeyError), sharmix.plain_torch(), sharmix.plain_torch():
        raise KeyError


@pytest.mark.parametrize("alpha", [1.5, 2.5])  # no kernel has 2.5
def test_an_infinite_gradient_at_a_probability_of_zero_counts_for_nothing(alpha):
    z = torch.tensor([[1.0, 0.8, 0.7, -9.0], [3.0, 0.0, -1.0, -2.0]], dtype=torch.float64, requires_grad=True)
    order = torch.tensor(alpha, dtype=torch.float64, requires_grad=True)
    results = []
    for within, again in ((nullcontext(), False), (sharmix.plain_torch(), False), (nullcontext(), True)):
        with within:
            p = sharmix.entmax(z, alpha=order)
            assert (p == 0).any()
            entropy = torch.special.entr(p).sum()  # its slope at 0 is infinite
            results.append(torch.autograd.grad(entropy, (z, order), create_graph=again))
    expected = torch.autograd.grad(
        sharmix.sharma_mittal_entropy(sharmix.entmax(z, alpha=order), 1, 1).sum(), (z, order)
    )
    for result in results:
        torch.testing.assert_close(result, expected)


def test_another_thread_and_another_task_choose_for_themselves():
    async def task(block):
        with block():
            await asyncio.sleep(0)  # the other task goes on
            return sharmix.backend()

    async def both():
        return await asyncio.gather(task(sharmix.plain_torch), task(nullcontext))

    with sharmix.plain_torch():
        assert in_a_thread(sharmix.backend) == USUAL
    assert asyncio.run(both()) == ["torch", USUAL]


# Backward passes.


def losses(z):
    y = torch.arange(len(z))
    row_orders = torch.full((len(z), 1), 1.3, dtype=z.dtype)
    yield "map", sharmix.sharmix(z).square().sum()
    yield "map, an order for each row", sharmix.sharmix(z, row_orders).square().sum()
    yield "loss", sharmix.fenchel_young_loss(z, y)
    yield "loss of each row", sharmix.fenchel_young_loss(z, y, reduction="none").sum()


@pytest.mark.parametrize("in_thread", [False, True])
def test_the_backward_pass_computes_as_the_forward_pass_did(calls, in_thread):
    z = torch.linspace(-1, 2, 12, dtype=torch.float64).reshape(3, 4).requires_grad_()
    with sharmix.plain_torch():
        plain_forward = dict(losses(z))
    kernel_forward = dict(losses(z))
    for name, loss in plain_forward.items():
        kernel = kernel_forward[name]
        for given, other, block in ((loss, "cpu", nullcontext), (kernel, "any_device", sharmix.plain_torch)):
            for create_graph in (False, True):
                calls.clear()

                def differentiate(given=given, create_graph=create_graph):
                    return torch.autograd.grad(given, z, retain_graph=True, create_graph=create_graph)[0]

                with block():
                    found = in_a_thread(differentiate) if in_thread else differentiate()
                assert USUAL == "torch" or not [call for call in calls if call.startswith(other)], (name, calls)
                expected = torch.autograd.grad(kernel_forward[name], z, retain_graph=True)[0]
                torch.testing.assert_close(found.detach(), expected)


@pytest.mark.medium
@pytest.mark.parametrize("compiled_within", [False, True])
def test_a_compiled_function_computes_as_each_call_asks(calls, compiled_within):
    z = torch.linspace(-1, 2, 12, dtype=torch.float64).reshape(3, 4).requires_grad_()

    def both(z):
        return sharmix.sharmix(z).square().sum() + sharmix.fenchel_young_loss(z, torch.arange(3))

    usual = both(z)
    expected = usual, *torch.autograd.grad(usual, z)
    compiled = torch.compile(both, fullgraph=True, backend="aot_eager")
    for within in (compiled_within, not compiled_within, compiled_within):
        calls.clear()
        with sharmix.plain_torch() if within else nullcontext():
            value = compiled(z)
            gradient = torch.autograd.grad(value, z)
        torch.testing.assert_close((value, *gradient), expected)
        other = "cpu" if within else "any_device"
        assert USUAL == "torch" or (calls and not [call for call in calls if call.startswith(other)]), calls
    with sharmix.plain_torch():
        value = compiled(z)
    (outside_of_the_block,) = torch.autograd.grad(value, z)
    assert USUAL == "torch" or outside_of_the_block.isnan().all()
