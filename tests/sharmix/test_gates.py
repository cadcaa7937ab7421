"""Gates: the first probability of a map of two logits, of which the second one is 0."""

import math
import time

import entmax
import pytest
import torch

import sharmix
from tests.sharmix import reference
from tests.sharmix.accuracy import HALF_PRECISION
from tests.sharmix.cases import assert_errors_within

GATES = {"sparsemoid": 2.0, "entmoid": 1.5}  # with the α of their maps
EACH_GATE = pytest.mark.parametrize(("gate", "alpha"), [(getattr(sharmix, name), GATES[name]) for name in GATES])
MODULES = [(sharmix.Sparsemoid(), sharmix.sparsemoid), (sharmix.Entmoid(), sharmix.entmoid)]
OUTSIDE = [-math.inf, -1e30, -7.0, 7.0, 1e30, math.inf, math.nan]


def between_the_ends(alpha):
    """Logits at which the gate is neither closed nor open, nor about to be."""
    return torch.linspace(-0.99, 0.99, 12, dtype=torch.float64).requires_grad_().mul(1 / (alpha - 1))


def of_two(z):
    return torch.stack([z, torch.zeros_like(z)], -1)


@EACH_GATE
def test_error_against_fifty_digits(gate, alpha):
    end = 1 / (alpha - 1)
    logits = [0.0, 1e-300, 1e-9, 0.3, end - 1e-9, math.nextafter(end, 0), end, 9.0]
    errors = {}
    for z in [sign * logit for logit in logits for sign in (1, -1)]:
        p = gate(torch.tensor([z], dtype=torch.float64))
        errors[z] = reference.worst_error(p.tolist(), reference.sharmix([z, 0.0], alpha, alpha)[:1])
    assert_errors_within(errors, 1e-15)


@EACH_GATE
def test_values_and_gradients_are_those_of_the_map(gate, alpha):
    z = torch.cat([between_the_ends(alpha), torch.tensor([-7.0, 7.0], dtype=torch.float64)])
    of_gate, of_map = gate(z), sharmix.entmax(of_two(z), alpha=alpha)[..., 0]
    torch.testing.assert_close(of_gate, of_map)
    weight = torch.arange(len(z), dtype=torch.float64).cos()
    torch.testing.assert_close(*(torch.autograd.grad(p @ weight, z)[0] for p in (of_gate, of_map)))


@EACH_GATE
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALF_PRECISION], ids=str)
def test_a_gate_is_closed_or_open_outside_and_keeps_nan(gate, alpha, dtype):
    z = torch.tensor(OUTSIDE, dtype=dtype, requires_grad=True)
    p = gate(z)
    assert p.tolist()[:-1] == [0, 0, 0, 1, 1, 1]
    assert p[-1].isnan()
    assert p.dtype == dtype
    p[:-1].sum().backward()
    assert z.grad.eq(0).all()


@EACH_GATE
@pytest.mark.parametrize("dtype", HALF_PRECISION, ids=str)
def test_half_precision_is_computed_in_float32(gate, alpha, dtype):
    z = torch.linspace(-3, 3, 101).to(dtype)
    assert torch.equal(gate(z), gate(z.float()).to(dtype))


def test_sparsemoid_is_the_formula_of_node_to_the_last_digit():
    z = 2 * torch.randn(1000, generator=torch.Generator().manual_seed(0))
    assert torch.equal(sharmix.sparsemoid(z), (0.5 * z + 0.5).clamp(0, 1))


@EACH_GATE
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_derivatives_are_exact_in_both_modes_and_twice(gate, alpha):
    z = between_the_ends(alpha).detach().requires_grad_()
    assert torch.autograd.gradcheck(gate, z, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(gate, z)


@EACH_GATE
def test_every_shape_and_a_vmapped_gate(gate, alpha):
    z = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))
    assert torch.equal(torch.func.vmap(gate)(z), gate(z))
    assert torch.equal(gate(z.mT), gate(z).mT)
    for one in (z[0, 0, 0], z[:0]):
        assert gate(one).shape == one.shape


@pytest.mark.medium
@pytest.mark.parametrize(("module", "function"), MODULES)
def test_a_module_compiles_and_is_its_function(module, function):
    torch.compiler.reset()
    z = torch.randn(7, generator=torch.Generator().manual_seed(0)).requires_grad_()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    for p in (module(z), compiled(z)):
        assert torch.equal(p, function(z))
        assert torch.equal(*(torch.autograd.grad(output.square().sum(), z)[0] for output in (p, function(z))))


@EACH_GATE
@pytest.mark.parametrize("wrong", [torch.arange(3), [0.5], torch.zeros(3).to_sparse()], ids=["int", "list", "sparse"])
def test_what_is_no_dense_floating_point_tensor_is_refused(gate, alpha, wrong):
    with pytest.raises(TypeError, match=r"logits must be a (floating-point|dense) tensor, got"):
        gate(wrong)


@EACH_GATE
def test_a_gate_takes_a_small_part_of_the_time_of_the_entmax_package(gate, alpha):
    package = {2.0: entmax.sparsemax, 1.5: entmax.entmax15}[alpha]
    z = torch.randn(1 << 16, generator=torch.Generator().manual_seed(0)).requires_grad_()

    def seconds(function):
        start = time.process_time()
        p = function(z)
        torch.autograd.grad(p, z, p)
        return time.process_time() - start

    ours, theirs = (min(seconds(f) for _ in range(5)) for f in (gate, lambda z: package(of_two(z), dim=-1)[..., 0]))
    assert ours < theirs / 3  # at most a tenth
