"""torch.func transforms and torch.compile, on map and loss."""

import pytest
import torch
from torch.func import grad, jacfwd, jacrev, vmap

import sharmix

# The first use of forward mode in a process makes torch compile decompositions of its own by its
# deprecated torch.jit.script.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")

LABELS = torch.tensor([2, 0, 1])
ORDERS = [(1.0, 1.0), (1.25, 1.5), (1.5, 1.5), (2.0, 2.0), (1.75, 1.25)]


def logits(*shape):
    generator = torch.Generator().manual_seed(0)
    return 0.5 * torch.randn(*shape, dtype=torch.float64, generator=generator)


def number(value):
    return torch.tensor(value, dtype=torch.float64)


def scalar_loss(z, q, r, temperature):
    return sharmix.fenchel_young_loss(z, torch.tensor(1), q, r, temperature)


@pytest.mark.parametrize(("q", "r"), ORDERS)
def test_vmap_over_logits_equals_the_batch(q, r):
    z = logits(3, 5)
    torch.testing.assert_close(vmap(lambda row: sharmix.sharmix(row, q, r))(z), sharmix.sharmix(z, q, r))
    losses = vmap(lambda row, y: sharmix.fenchel_young_loss(row, y, q, r))(z, LABELS)
    expected = sharmix.fenchel_young_loss(z, LABELS, q, r, reduction="none")
    torch.testing.assert_close(losses, expected)


@pytest.mark.parametrize("function", [sharmix.sharmix, scalar_loss], ids=["map", "loss"])
@pytest.mark.parametrize("position", [1, 2, 3], ids=["q", "r", "temperature"])
def test_vmap_over_a_parameter_equals_one_call_each(function, position):
    arguments = [logits(5), number(1.25), number(1.5), number(1.0)]
    values = number([1.2, 1.5, 1.9])
    arguments[position] = values
    in_dims = tuple(0 if i == position else None for i in range(4))
    together = vmap(function, in_dims=in_dims)(*arguments)
    for value, result in zip(values, together, strict=True):
        arguments[position] = value
        torch.testing.assert_close(result, function(*arguments))


@pytest.mark.parametrize(("q", "r"), ORDERS)
@pytest.mark.parametrize("function", [sharmix.sharmix, scalar_loss], ids=["map", "loss"])
def test_forward_and_reverse_mode_agree(function, q, r):
    arguments = (logits(5), number(q), number(r), number(0.8))
    everything = (0, 1, 2, 3)
    reverse = jacrev(function, argnums=everything)(*arguments)
    forward = jacfwd(function, argnums=everything)(*arguments)
    plain = torch.autograd.functional.jacobian(function, arguments)
    for a, b, c in zip(reverse, forward, plain, strict=True):
        torch.testing.assert_close(a, b)
        torch.testing.assert_close(a, c)
        assert a.abs().max() > 0


@pytest.mark.parametrize(("q", "r"), ORDERS[:4])
def test_hessians_of_the_loss_agree_in_all_modes_with_the_jacobian_of_the_map(q, r):
    arguments = (logits(5), number(q), number(r), number(0.8))
    jacobian = jacrev(sharmix.sharmix)(*arguments)
    for outer in (jacfwd, jacrev):
        torch.testing.assert_close(outer(grad(scalar_loss))(*arguments), jacobian)


@pytest.mark.parametrize(("q", "r"), ORDERS[:4])
def test_second_derivatives_of_the_map_agree_in_all_modes(q, r):
    arguments = (logits(4), number(q), number(r), number(0.8))
    over_forward, over_reverse = (
        outer(jacrev(sharmix.sharmix, argnums=(0, 1)), argnums=(0, 1))(*arguments) for outer in (jacfwd, jacrev)
    )
    for a, b in zip(over_forward, over_reverse, strict=True):
        for x, y in zip(a, b, strict=True):
            torch.testing.assert_close(x, y)


def test_gradients_per_example():
    z = logits(3, 5)
    per_example = vmap(grad(lambda row, y: sharmix.fenchel_young_loss(row, y)))(z, LABELS)
    expected = sharmix.sharmix(z) - torch.nn.functional.one_hot(LABELS, 5)
    torch.testing.assert_close(per_example, expected)


def test_forward_mode_through_alpha_relu():
    z = logits(5)
    torch.testing.assert_close(jacfwd(sharmix.alpha_relu)(z), jacrev(sharmix.alpha_relu)(z))
    rows = logits(3, 5)
    torch.testing.assert_close(vmap(sharmix.alpha_relu)(rows), sharmix.alpha_relu(rows))


COMPILED = {
    "map": lambda z, q, r: sharmix.sharmix(z, q, r).square().sum(),
    "loss": lambda z, q, r: sharmix.fenchel_young_loss(z, LABELS, q, r),
    "alpha_relu_loss": lambda z, q, r: sharmix.alpha_relu_loss(z, LABELS),
}


def _value_and_gradients(function, z, q, r):
    inputs = [v.clone().requires_grad_() for v in (z, q, r)]
    value = function(*inputs)
    return value, torch.autograd.grad(value, inputs, allow_unused=True, materialize_grads=True)


@pytest.mark.slow
@pytest.mark.parametrize("door", COMPILED)
def test_the_compiled_door_equals_the_plain_one_forward_and_backward(door):
    torch.compiler.reset()
    compiled = torch.compile(COMPILED[door], fullgraph=True, backend="aot_eager")
    arguments = (logits(3, 5), number(1.25), number(1.5))
    actual = _value_and_gradients(compiled, *arguments)
    torch.testing.assert_close(actual, _value_and_gradients(COMPILED[door], *arguments))


@pytest.mark.slow
def test_the_search_outside_the_concave_region_compiles():
    torch.compiler.reset()

    def loss(z):
        return sharmix.fenchel_young_loss(z, LABELS, q=1.75, r=1.25)

    z = logits(3, 5).requires_grad_()
    actual = torch.compile(loss, fullgraph=True, backend="aot_eager")(z)
    torch.testing.assert_close(actual, loss(z))
    torch.testing.assert_close(torch.autograd.grad(actual, z), torch.autograd.grad(loss(z), z))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["softmax", "alpha_relu", "sharmix_fixed"])
@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
def test_a_loss_of_as_many_rows_as_the_data_say_compiles(name):
    torch.compiler.reset()
    act = sharmix.build_activation(name, **{"tau": 0.3} if name == "alpha_relu" else {})

    def loss(z, y):
        some = y > 0
        return act.loss(z[some], y[some])

    z = logits(3, 5)
    torch.testing.assert_close(torch.compile(loss, fullgraph=True, backend="eager")(z, LABELS), loss(z, LABELS))


@pytest.mark.slow
def test_a_learned_activation_compiles_as_a_module():
    torch.compiler.reset()
    act = sharmix.build_activation("sharmix_learned", q=1.25, r=1.5)
    compiled = torch.compile(act, fullgraph=True, backend="aot_eager")
    z = logits(3, 5).float()
    torch.testing.assert_close(compiled(z), act(z))
