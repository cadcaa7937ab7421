"""What a program does around softmax, cross_entropy and modules: graphs, hooks, modes, threads, copies, optimisers."""

import copy
from contextlib import contextmanager, nullcontext

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.func import functional_call, jacrev, jvp, linearize, stack_module_state, vmap
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import sharmix
from tests.sharmix.cases import every_case
from tests.sharmix.doors import EVERYTHING, LOSSES, MAPS, NAMES, build, labels, logits, soft_targets

# The first use of forward mode in a process makes torch compile decompositions of its own by its
# deprecated torch.jit.script.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")

DIFFERENTIABLE_TWICE = MAPS | LOSSES
LEARNED = [name for name in NAMES if name.endswith("_learned")]


def gradient_of(function, z=None):
    z = logits().requires_grad_() if z is None else z
    return torch.autograd.grad(function(z).square().sum(), z)[0]


# Graphs: what is kept for the backward pass may be moved, packed, computed again, or changed.


def narrowed(tensor):
    return tensor.float() if tensor.is_floating_point() else tensor


CONTEXTS = {
    "saved on the CPU": torch.autograd.graph.save_on_cpu,
    "no hooks allowed": lambda: torch.autograd.graph.disable_saved_tensors_hooks("none"),
    "saved tensors may change": torch.autograd.graph.allow_mutation_on_saved_tensors,
    "watched for anomalies": lambda: torch.autograd.set_detect_anomaly(True),
    "saved in half the bytes": lambda: torch.autograd.graph.saved_tensors_hooks(narrowed, lambda x: x),
    "one thread": lambda: torch.autograd.set_multithreading_enabled(False),
    "in a CPU autocast": lambda: torch.autocast("cpu", torch.bfloat16),
}


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("context", CONTEXTS)
def test_a_context_around_the_graph_changes_no_gradient(context):
    with every_case() as case:
        for name, function in EVERYTHING.items():
            if (context, name) != ("in a CPU autocast", "linear loss"):  # whose layer computes in half precision
                with case(function=name):
                    expected = gradient_of(function)
                    digits = {"rtol": 1e-4, "atol": 1e-5} if "half" in context else {}
                    with CONTEXTS[context]():
                        torch.testing.assert_close(gradient_of(function), expected, **digits)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_a_checkpoint_changes_no_gradient(use_reentrant):
    with every_case() as case:
        for name, function in EVERYTHING.items():
            with case(function=name):
                z = logits().requires_grad_()
                checkpoint(function, z, use_reentrant=use_reentrant).square().sum().backward()
                torch.testing.assert_close(z.grad, gradient_of(function))


class Changed:
    """Something that a function reads, changed in place between its forward and its backward pass."""

    def __init__(self, function, tensor):
        self.function, self.tensor = function, tensor

    def check(self, implementation, create_graph):
        tensor, z = self.tensor.clone(), logits().requires_grad_()
        with implementation():
            output = self.function(z, tensor).square().sum()
            (expected,) = torch.autograd.grad(output, z, retain_graph=True)
            with torch.no_grad():
                tensor.copy_(tensor.flip(0) if tensor.dim() else tensor + 0.25)
            try:
                (found,) = torch.autograd.grad(output, z, create_graph=create_graph)
            except RuntimeError as error:
                if "modified by an inplace operation" not in str(error):
                    raise
            else:
                torch.testing.assert_close(found, expected)


def test_what_is_changed_in_place_before_the_backward_pass_is_an_error_or_makes_no_difference():
    orders = {"q": 1.3, "r": 1.6, "temperature": 0.8}
    y, soft = labels(logits()), soft_targets(logits())
    readers = {
        "the logits of a map": Changed(lambda z, x: sharmix.sharmix(z + x), logits()),
        "soft targets": Changed(sharmix.fenchel_young_loss, soft),
        "labels": Changed(sharmix.fenchel_young_loss, y),
        "labels of alpha_relu": Changed(sharmix.alpha_relu_loss, y),
        "tau": Changed(lambda z, tau: sharmix.alpha_relu(z, tau=tau), torch.tensor(0.2)),
        "tau of the loss": Changed(lambda z, tau: sharmix.alpha_relu_loss(z, y, tau=tau), torch.tensor(0.2)),
        "tau of the soft loss": Changed(lambda z, tau: sharmix.alpha_relu_loss(z, soft, tau=tau), torch.tensor(0.2)),
    }
    for name, value in orders.items():
        for shape in ((), (3, 1)):
            start = torch.full(shape, value, dtype=torch.float64)
            readers |= {
                f"{name} {shape}": Changed(lambda z, x, k=name: sharmix.sharmix(z, **{k: x}), start),
                f"{name} {shape} of the loss": Changed(
                    lambda z, x, k=name: sharmix.fenchel_young_loss(z, y, **{k: x}), start
                ),
                f"{name} {shape} of the soft loss": Changed(
                    lambda z, x, k=name: sharmix.fenchel_young_loss(z, soft, **{k: x}), start
                ),
            }
    with every_case() as case:
        for implementation in (nullcontext, sharmix.plain_torch):
            for name, reader in readers.items():
                for create_graph in (False, True):
                    with case(changed=name, implementation=implementation.__name__, create_graph=create_graph):
                        reader.check(implementation, create_graph)


# Derivatives by torch's other doors.


@pytest.mark.medium
@pytest.mark.filterwarnings("ignore:.*batching rule")
def test_every_way_to_check_a_gradient():
    with every_case() as case:
        for name, function in DIFFERENTIABLE_TWICE.items():
            with case(function=name):
                z = logits().requires_grad_()
                checks = dict.fromkeys(("check_forward_ad", "check_batched_grad", "check_batched_forward_grad"), True)
                assert torch.autograd.gradcheck(function, z, **checks)
                checks = dict.fromkeys(("fast_mode", "check_fwd_over_rev", "check_batched_grad"), True)
                assert torch.autograd.gradgradcheck(function, z, **checks)


@pytest.mark.medium
@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")  # linearize's own
def test_tangents_by_every_door():
    with every_case() as case:
        for name, function in DIFFERENTIABLE_TWICE.items():
            with case(function=name):
                z, direction = logits(4, 3).T, logits().flip(0)
                expected = torch.tensordot(jacrev(function)(z), direction, 2)
                torch.testing.assert_close(jvp(function, (z,), (direction,))[1], expected)
                if name in ("sharmix", "loss", "soft loss"):
                    torch.testing.assert_close(linearize(function, z)[1](direction), expected)
                with forward_ad.dual_level():
                    output = forward_ad.unpack_dual(function(forward_ad.make_dual(z, direction)))
                    torch.testing.assert_close(output.tangent, expected)
                    half = forward_ad.make_dual(z.bfloat16(), direction.bfloat16())
                    output = forward_ad.unpack_dual(function(half))
                    assert output.tangent.dtype == output.primal.dtype


# Modes and settings.


@contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def deterministic():
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


class SeesFunctions(TorchFunctionMode):
    def __torch_function__(self, function, types, arguments=(), options=None):
        return function(*arguments, **(options or {}))


class SeesOperators(TorchDispatchMode):
    def __torch_dispatch__(self, operator, types, arguments=(), options=None):
        return operator(*arguments, **(options or {}))


SETTINGS = {
    "half by default": lambda: default_dtype(torch.float16),
    "double by default": lambda: default_dtype(torch.float64),
    "deterministic": deterministic,
    "functions seen": SeesFunctions,
    "operators seen": SeesOperators,
    "operations counted": lambda: FlopCounterMode(display=False),
    "profiled": torch.profiler.profile,
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_setting_changes_no_value_no_gradient_and_no_type(setting):
    with every_case() as case:
        for name, function in EVERYTHING.items():
            for dtype in (torch.float64, torch.float32):
                with case(function=name, dtype=dtype):
                    z = logits(dtype=dtype).requires_grad_()
                    expected, expected_gradient = function(z).detach(), gradient_of(function, z)
                    with SETTINGS[setting]():
                        found, found_gradient = function(z).detach(), gradient_of(function, z)
                    torch.testing.assert_close(found, expected)
                    torch.testing.assert_close(found_gradient, expected_gradient)


# Modules.


@pytest.mark.parametrize("name", LEARNED)
def test_learned_parameters_are_parameters(name):
    """They can be replaced, stacked, made a vector, and trained by any optimiser."""
    act, z = build(name), logits()
    y = labels(z)
    acts = [act, build(name)]
    parameters, buffers = stack_module_state(acts)
    together = vmap(lambda p, b: functional_call(act, (p, b), (z,)))(parameters, buffers)
    torch.testing.assert_close(together, torch.stack([one(z) for one in acts]))
    for optimiser, options in (
        (torch.optim.SGD, {"momentum": 0.9}),
        (torch.optim.AdamW, {"foreach": True}),
        (torch.optim.AdamW, {"fused": True}),
        (torch.optim.Adagrad, {}),
        (torch.optim.RMSprop, {}),
    ):
        one = copy.deepcopy(act)
        before = nn.utils.parameters_to_vector(one.parameters()).detach().clone()
        one.loss(z, y).backward()
        assert nn.utils.clip_grad_norm_(one.parameters(), 1e-3) > 0
        optimiser(one.parameters(), lr=1e-3, **options).step()
        after = nn.utils.parameters_to_vector(one.parameters()).detach()
        assert (after != before).all()
        nn.utils.vector_to_parameters(before, one.parameters())
        torch.testing.assert_close(one(z), act(z))
