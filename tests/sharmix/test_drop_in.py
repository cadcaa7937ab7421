"""What a program does around softmax, cross_entropy and modules: contexts, modes, checkpoints, changes in place."""

from contextlib import contextmanager, nullcontext

import pytest
import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import BaseTorchDispatchMode
from torch.utils.checkpoint import checkpoint

import sharmix
from tests.sharmix.cases import for_every
from tests.sharmix.doors import EVERYTHING, LOSSES, MAPS, labels, logits, soft_targets, value_and_gradient

# The first use of forward mode in a process makes torch compile decompositions of its own by its
# deprecated torch.jit.script.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")

DIFFERENTIABLE_TWICE = MAPS | LOSSES


# Contexts, modes and settings around the forward and the backward pass.


@contextmanager
def during(switch, value, otherwise):
    switch(value)
    try:
        yield
    finally:
        switch(otherwise)


CONTEXTS = {
    "saved on the CPU": torch.autograd.graph.save_on_cpu,
    "no hooks allowed": lambda: torch.autograd.graph.disable_saved_tensors_hooks("none"),
    "saved tensors may change": torch.autograd.graph.allow_mutation_on_saved_tensors,
    "saved in half the bytes": lambda: torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: tensor.float() if tensor.is_floating_point() else tensor, lambda x: x
    ),
    "watched for anomalies": lambda: torch.autograd.set_detect_anomaly(True),
    "one thread": lambda: torch.autograd.set_multithreading_enabled(False),
    "in a CPU autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "meta by default": lambda: torch.device("meta"),
    "half by default": lambda: during(torch.set_default_dtype, torch.float16, torch.float32),
    "double by default": lambda: during(torch.set_default_dtype, torch.float64, torch.float32),
    "deterministic": lambda: during(torch.use_deterministic_algorithms, True, False),
    "operators seen": BaseTorchDispatchMode,
    "profiled": torch.profiler.profile,
}


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("context", CONTEXTS)
@for_every(name=[*EVERYTHING], dtype=(torch.float64, torch.float32))
def test_a_context_changes_no_value_no_gradient_and_no_type(context, name, dtype):
    if (context, name, dtype) == ("in a CPU autocast", "linear loss", torch.float32):
        return  # the layer of the linear loss computes in half precision
    function, z = EVERYTHING[name], logits(dtype=dtype)
    expected = value_and_gradient(function, z)
    with CONTEXTS[context]():
        found = value_and_gradient(function, z)
    digits = {"rtol": 1e-4, "atol": 1e-5} if context == "saved in half the bytes" else {}
    torch.testing.assert_close(found, expected, **digits)


# Graphs: what is kept for the backward pass may be computed again, or changed.


@pytest.mark.parametrize("use_reentrant", [False, True])
@for_every(function=EVERYTHING)
def test_a_checkpoint_changes_no_gradient(use_reentrant, function):
    z = logits().requires_grad_()
    checkpoint(function, z, use_reentrant=use_reentrant).square().sum().backward()
    torch.testing.assert_close(z.grad, value_and_gradient(function, z)[1])


CLASSES, SOFT = labels(logits()), soft_targets(logits())
READERS = {  # of the logits and of a tensor
    "the logits of a map": (lambda z, x: sharmix.sharmix(z + x), logits()),
    "soft targets": (sharmix.fenchel_young_loss, SOFT),
    "labels": (sharmix.fenchel_young_loss, CLASSES),
    "labels of alpha_relu": (sharmix.alpha_relu_loss, CLASSES),
    "tau": (lambda z, tau: sharmix.alpha_relu(z, tau=tau), torch.tensor(0.2)),
    "tau of the loss": (lambda z, tau: sharmix.alpha_relu_loss(z, CLASSES, tau=tau), torch.tensor(0.2)),
    "tau of the soft loss": (lambda z, tau: sharmix.alpha_relu_loss(z, SOFT, tau=tau), torch.tensor(0.2)),
}
for name, value in {"q": 1.3, "r": 1.6, "temperature": 0.8}.items():
    for shape in ((), (3, 1)):
        start = torch.full(shape, value, dtype=torch.float64)
        READERS |= {
            f"{name} {shape}": (lambda z, x, k=name: sharmix.sharmix(z, **{k: x}), start),
            f"{name} {shape}, loss": (lambda z, x, k=name: sharmix.fenchel_young_loss(z, CLASSES, **{k: x}), start),
            f"{name} {shape}, soft": (lambda z, x, k=name: sharmix.fenchel_young_loss(z, SOFT, **{k: x}), start),
        }


@for_every(implementation=(nullcontext, sharmix.plain_torch), reader=READERS, create_graph=(False, True))
def test_what_is_changed_in_place_before_the_backward_pass_is_an_error_or_makes_no_difference(
    implementation, reader, create_graph
):
    """What a function reads beside logits is changed between its forward and its backward pass."""
    function, tensor = reader
    tensor, z = tensor.clone(), logits().requires_grad_()
    with implementation():
        output = function(z, tensor).square().sum()
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


# Derivatives by torch's other doors.


@pytest.mark.medium
@pytest.mark.filterwarnings("ignore:.*batching rule")
@for_every(function=DIFFERENTIABLE_TWICE)
def test_every_way_to_check_a_gradient(function):
    z = logits().requires_grad_()
    checks = dict.fromkeys(("check_forward_ad", "check_batched_grad", "check_batched_forward_grad"), True)
    assert torch.autograd.gradcheck(function, z, **checks)
    checks = dict.fromkeys(("fast_mode", "check_fwd_over_rev", "check_batched_grad"), True)
    assert torch.autograd.gradgradcheck(function, z, **checks)


@for_every(function=DIFFERENTIABLE_TWICE)
def test_a_tangent_has_the_type_of_its_primal_in_half_precision_too(function):
    with forward_ad.dual_level():
        half = forward_ad.make_dual(logits().bfloat16(), logits().flip(0).bfloat16())
        output = forward_ad.unpack_dual(function(half))
        assert output.tangent.dtype == output.primal.dtype
