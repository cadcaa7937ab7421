"""torch.func transforms and torch.compile, on map and loss."""

import pytest
import torch
from torch.func import grad, jacfwd, jacrev, vmap

import sharmix
from tests.sharmix.cases import for_every
from tests.sharmix.doors import EVERYTHING, NAMES, build, soft_targets

# The first use of forward mode in a process makes torch compile decompositions of its own by its
# deprecated torch.jit.script; and the compiler of some releases warns of the autograd functions that it traces.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.torch.jit.script. is deprecated", "ignore:.*Function'> should not be instantiated"
)

LABELS = torch.tensor([2, 0, 1])
ORDERS = [(1.0, 1.0), (1.25, 1.5), (1.5, 1.5), (2.0, 2.0), (1.75, 1.25)]


def refusal_or(compute):
    """What a computation gives, or the words with which it refuses."""
    try:
        return compute()
    except (NotImplementedError, RuntimeError) as error:
        return str(error)


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
    gradients = vmap(grad(lambda row, y: sharmix.fenchel_young_loss(row, y, q, r)))(z, LABELS)
    torch.testing.assert_close(gradients, sharmix.sharmix(z, q, r) - torch.nn.functional.one_hot(LABELS, 5))


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


@pytest.mark.parametrize("name", ["sharmix", "orders above 2", "loss", "smoothed loss", "alpha_relu loss"])
def test_hessians_are_right_in_every_mode_and_refused_in_forward_mode_twice(name):
    """Torch drops the outer tangent of a custom function without a word."""
    function, z = EVERYTHING[name], logits(2, 4)
    expected = jacrev(jacrev(function))(z)
    for outer, inner in ((jacfwd, jacrev), (jacrev, jacfwd), (jacfwd, jacfwd)):
        found = refusal_or(lambda f=outer, g=inner: f(g(function))(z))
        if isinstance(found, str):
            assert outer is inner is jacfwd
            assert "jacrev" in found  # what to use instead
        else:
            torch.testing.assert_close(found, expected)


def gradients(output, inputs):
    return torch.autograd.grad(output.square().sum(), inputs, allow_unused=True, materialize_grads=True)


@pytest.mark.medium
@pytest.mark.parametrize("name", NAMES)
def test_every_activation_compiles_as_a_module_forward_and_backward(name):
    torch.compiler.reset()
    act = build(name)
    # Each kind once, fixed and learned; the others differ from these in what Python computes, which any backend traces.
    backend = "aot_eager" if name in ("sharmix_fixed", "sharmix_learned", "alpha_relu") else "eager"
    z, y = logits(3, 5).requires_grad_(), soft_targets(logits(3, 5)).contiguous()
    compiled = torch.compile(act, fullgraph=True, backend=backend)
    assert_equal_with_gradients(compiled(z), act(z), z, act)
    for targets, smoothing in ((LABELS, 0.0), (LABELS, 0.1), (y, 0.0)):
        loss = torch.compile(act.loss, fullgraph=True, backend=backend)
        found = loss(z, targets, label_smoothing=smoothing)
        assert_equal_with_gradients(found, act.loss(z, targets, label_smoothing=smoothing), z, act)


def assert_equal_with_gradients(found, expected, z, act):
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(gradients(output, [z, *act.parameters()]) for output in (found, expected)))


@pytest.mark.medium
@pytest.mark.parametrize("shape", [(), (3, 1)])
@for_every(
    function={
        "q and r": lambda z, v: sharmix.sharmix(z, v, v),
        "entmax": lambda z, v: sharmix.entmax(z, alpha=v),
        "the logits too": lambda z, v: sharmix.sharmix(z, 1 + z.square().mean(), 1 + z.square().mean()),
        "loss": lambda z, v: sharmix.fenchel_young_loss(z, LABELS, v, v),
        "smoothed loss": lambda z, v: sharmix.fenchel_young_loss(z, LABELS, v, v, label_smoothing=0.1),
    }
)
def test_one_tensor_as_two_or_three_parameters_compiles(shape, function):
    assert_compiles(function, [(logits(3, 5), torch.full(shape, 1.5, dtype=torch.float64))], backend="aot_eager")


def assert_compiles(function, calls, **options):
    """In one graph, which gives the value and the gradients of the function in each call."""
    torch.compiler.reset()
    compiled = torch.compile(function, fullgraph=True, **options)
    for arguments in calls:
        inputs = [one.clone().requires_grad_() if isinstance(one, torch.Tensor) else one for one in arguments]
        tensors = [one for one in inputs if isinstance(one, torch.Tensor)]
        found, expected = compiled(*inputs), function(*inputs)
        torch.testing.assert_close((found, gradients(found, tensors)), (expected, gradients(expected, tensors)))


@pytest.mark.slow
def test_inductors_code_gives_the_same():
    torch.compiler.reset()
    act = build("entmax_learned")
    z = logits(3, 5).requires_grad_()
    assert_equal_with_gradients(torch.compile(act, fullgraph=True)(z), act(z), z, act)


# Numbers that change at every call, as when they are annealed; softmax(z / temperature) compiles once.
ANNEALED = {
    "q": lambda z, v: sharmix.sharmix(z, v, 1.6),
    "r": lambda z, v: sharmix.sharmix(z, 1.2, v),
    "temperature": lambda z, v: sharmix.sharmix(z, 1.2, 1.5, v),
    "alpha": lambda z, v: sharmix.entmax(z, alpha=v),
    "q of the loss": lambda z, v: sharmix.fenchel_young_loss(z, LABELS, v, 1.6),
    "q of the smoothed loss": lambda z, v: sharmix.fenchel_young_loss(z, LABELS, v, 1.6, label_smoothing=0.1),
    "q of the soft loss": lambda z, v: sharmix.fenchel_young_loss(z, torch.full_like(z, 0.2), v, 1.6),
    "alpha of alpha_relu": lambda z, v: sharmix.alpha_relu(z, alpha=v),
    "tau": lambda z, v: sharmix.alpha_relu(z, alpha=1.5, tau=v),
    "alpha of the alpha_relu loss": lambda z, v: sharmix.alpha_relu_loss(z, LABELS, alpha=v),
    "tau of the loss": lambda z, v: sharmix.alpha_relu_loss(z, LABELS, alpha=1.5, tau=v),
    "q of the entropy": lambda z, v: sharmix.sharma_mittal_entropy(z.softmax(-1), v, 1.5),
}


@pytest.mark.medium
@pytest.mark.parametrize("dynamic", [pytest.param(True, marks=pytest.mark.slow), None])
@pytest.mark.parametrize("name", ANNEALED)
@torch._dynamo.config.patch(recompile_limit=2)  # one more, with fullgraph, is an error
def test_a_number_that_changes_at_every_call_is_compiled_once_or_twice(name, dynamic):
    calls = [(logits(3, 5), value) for value in (1.5, 1.55, 1.6, 1.65, 1.7, 1.3)]
    backend = "aot_eager" if dynamic else "eager"  # how often is the same by either
    assert_compiles(ANNEALED[name], calls, dynamic=dynamic, backend=backend)


@pytest.mark.medium
@pytest.mark.parametrize("name", EVERYTHING)
@torch._dynamo.config.patch(recompile_limit=1)  # one more, with fullgraph, is an error
def test_rows_and_classes_of_any_number_compile_once(name):
    calls = [(logits(*shape),) for shape in ((3, 4), (5, 9), (2, 6))]
    assert_compiles(EVERYTHING[name], calls, dynamic=True, backend="eager")


def second_derivative(function):
    def compute(z):
        z = z.clone().requires_grad_()
        (first,) = torch.autograd.grad(function(z), z, create_graph=True)
        return torch.autograd.grad(first.square().sum(), z)[0]

    return compute


DERIVATIVES = {
    "jacfwd": (jacfwd, (3, 4)),
    "hessian": (torch.func.hessian, (3, 4)),
    "a gradient for each example": (lambda f: vmap(grad(f)), (2, 3, 4)),
    "vmap": (vmap, (2, 3, 4)),
}
# Beside second derivatives, which a compiler may always refuse.
REFUSED = {("orders above 2", "jacfwd"), ("orders above 2", "hessian")}


@pytest.mark.slow
@pytest.mark.filterwarnings(  # after a break of the graph dynamo traces the operators' own Python, too
    "ignore:Dynamo does not know how to trace the builtin",  # the kernel, which it then calls
    "ignore:Dynamo detected a call to a .functools.lru_cache",  # the check of numbers
)
@pytest.mark.parametrize("derivative", [*DERIVATIVES, "second derivative"])
@pytest.mark.parametrize("name", ["sharmix", "orders above 2", "loss", "smoothed loss", "alpha_relu loss", "entropy"])
def test_a_compiled_derivative_is_right_or_refused(name, derivative):
    """A tangent or gradient that a compiler drops without a word is neither."""
    torch.compiler.reset()

    def function(z):
        entropy = sharmix.sharma_mittal_entropy
        return (entropy(z.softmax(-1), 1.25, 1.5) if name == "entropy" else EVERYTHING[name](z)).square().sum()

    if derivative == "second derivative":  # of the compiled function; the others are compiled with the function
        z, expected = logits(3, 4), second_derivative(function)(logits(3, 4))
        compiled = second_derivative(torch.compile(function, fullgraph=True, backend="aot_eager"))
    else:
        transform, shape = DERIVATIVES[derivative]
        z = logits(*shape)
        expected, compiled = transform(function)(z), torch.compile(transform(function), backend="aot_eager")
    found = refusal_or(lambda: compiled(z))
    if isinstance(found, str):
        assert derivative == "second derivative" or (name, derivative) in REFUSED, found
    else:
        torch.testing.assert_close(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in EVERYTHING if name != "linear loss"])
def test_a_reverse_mode_transform_compiles_in_one_graph(name):
    torch.compiler.reset()
    gradient = grad(lambda z: EVERYTHING[name](z).square().sum())
    found = torch.compile(gradient, fullgraph=True, backend="aot_eager")(logits(3, 4))
    torch.testing.assert_close(found, gradient(logits(3, 4)))
