"""What a program does around softmax, cross_entropy and modules: graphs, hooks, modes, threads, copies, optimisers."""

import copy
import gc
import io
import math
import pickle
import threading
import weakref
from contextlib import contextmanager, nullcontext

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, jacfwd, jacrev, jvp, linearize, stack_module_state, vmap
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import sharmix
from tests.sharmix.cases import every_case
from tests.sharmix.doors import EVERYTHING, LINEAR_LOSS, LOSSES, MAPS, NAMES, build, labels, logits, soft_targets

# The first use of forward mode in a process makes torch compile decompositions of its own by its
# deprecated torch.jit.script.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")

DIFFERENTIABLE_TWICE = MAPS | LOSSES
LEARNED = [name for name in NAMES if name.endswith("_learned")]


def gradient_of(function, z=None):
    z = logits().requires_grad_() if z is None else z
    return torch.autograd.grad(function(z).square().sum(), z)[0]


# Graphs: what is kept for the backward pass may be moved, packed, computed again, or changed.


def packed():
    def pack(tensor):
        file = io.BytesIO()
        torch.save(tensor.detach(), file)
        return file.getvalue()

    def unpack(data):
        return torch.load(io.BytesIO(data), weights_only=True)

    return torch.autograd.graph.saved_tensors_hooks(pack, unpack)


def strided_otherwise(tensor):
    return tensor.expand(2, *tensor.shape).movedim(0, -1).contiguous()[..., 0]


def narrowed(tensor):
    return tensor.float() if tensor.is_floating_point() else tensor


CONTEXTS = {
    "saved on the CPU": torch.autograd.graph.save_on_cpu,
    "packed": packed,
    "no hooks allowed": lambda: torch.autograd.graph.disable_saved_tensors_hooks("none"),
    "saved tensors may change": torch.autograd.graph.allow_mutation_on_saved_tensors,
    "watched for anomalies": lambda: torch.autograd.set_detect_anomaly(True),
    "saved in another layout": lambda: torch.autograd.graph.saved_tensors_hooks(strided_otherwise, lambda x: x),
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


def test_hooks_see_the_gradients():
    with every_case() as case:
        for name, function in EVERYTHING.items():
            with case(function=name):
                z, seen = logits().requires_grad_(), []
                output = function(z)
                output.retain_grad()
                output.register_hook(lambda gradient: 2 * gradient)
                output.grad_fn.register_hook(lambda inputs, outputs, seen=seen: seen.append("node"))
                z.register_post_accumulate_grad_hook(lambda leaf, seen=seen: seen.append("leaf"))
                output.square().sum().backward()
                assert seen == ["node", "leaf"]
                torch.testing.assert_close(output.grad, 4 * output.detach())
                torch.testing.assert_close(z.grad, 2 * gradient_of(function))


def test_gradients_accumulate_and_a_graph_is_used_once():
    with every_case() as case:
        for name, function in EVERYTHING.items():
            with case(function=name):
                z = logits().requires_grad_()
                total = function(z).square().sum()
                total.backward(retain_graph=True)
                total.backward()
                torch.testing.assert_close(z.grad, 2 * gradient_of(function))
                with pytest.raises(RuntimeError, match="second time"):
                    total.backward()
                with pytest.raises(RuntimeError, match="shape"):
                    torch.autograd.grad(function(z), z, torch.ones(7, dtype=z.dtype))


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_an_anomaly_is_named():
    with every_case() as case:
        for name, function in (MAPS | LOSSES).items():
            with case(function=name), torch.autograd.detect_anomaly():
                z = torch.full((3, 4), math.nan, dtype=torch.float64, requires_grad=True)
                output = function(z).sum()
                with pytest.raises(RuntimeError, match="nan values"):
                    output.backward()


def test_no_graph_outlives_its_output():
    with every_case() as case:
        for name, function in EVERYTHING.items():
            with case(function=name):
                z = logits().requires_grad_()
                output = function(z)
                gradient = torch.autograd.grad(output.square().sum(), z, create_graph=name not in LINEAR_LOSS)
                alive = [weakref.ref(one) for one in (z, output)]
                del z, output, gradient
                assert [one() for one in alive] == [None, None]
    gc.collect()


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


def test_an_output_changed_in_place_is_an_error_or_makes_no_difference():
    with every_case() as case:
        for name, function in EVERYTHING.items():
            for dtype in (torch.float64, torch.bfloat16):
                with case(function=name, dtype=dtype):
                    z = logits(dtype=dtype).requires_grad_()
                    expected = gradient_of(lambda z, f=function: 2 * f(z), z)
                    output = function(z)
                    output.mul_(2)
                    try:
                        (found,) = torch.autograd.grad(output.square().sum(), z)
                    except RuntimeError as error:
                        if "modified by an inplace operation" not in str(error):
                            raise
                    else:
                        torch.testing.assert_close(found, expected)


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
                assert torch.autograd.gradcheck(function, z, fast_mode=True, check_forward_ad=True)
                assert torch.autograd.gradgradcheck(function, z, check_fwd_over_rev=True, check_batched_grad=True)


@pytest.mark.medium
@pytest.mark.filterwarnings("ignore:.*batching rule")
def test_the_functions_of_torch_autograd_functional():
    functional = torch.autograd.functional
    with every_case() as case:
        for name, function in DIFFERENTIABLE_TWICE.items():
            with case(function=name):
                z = logits()
                jacobian = jacrev(function)(z)
                for options in ({}, {"vectorize": True}, {"vectorize": True, "strategy": "forward-mode"}):
                    torch.testing.assert_close(functional.jacobian(function, z, **options), jacobian)

                def total(z, function=function):
                    return function(z).square().sum()

                hessian = torch.func.hessian(total)(z)
                for options in ({}, {"vectorize": True, "outer_jacobian_strategy": "forward-mode"}):
                    torch.testing.assert_close(functional.hessian(total, z, **options), hessian)
                product = torch.tensordot(hessian, z, 2)
                for way in (functional.hvp, functional.vhp):
                    torch.testing.assert_close(way(total, z, z)[1], product)


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


@pytest.mark.medium
@pytest.mark.filterwarnings("ignore:.*batching rule")
def test_batches_in_any_dimension_and_at_any_depth():
    with every_case() as case:
        for name, function in DIFFERENTIABLE_TWICE.items():
            with case(function=name):
                z = logits(2, 5, 3, 4)
                each = torch.stack([torch.stack([function(one) for one in row]) for row in z])
                torch.testing.assert_close(vmap(vmap(function))(z), each)
                torch.testing.assert_close(vmap(function, chunk_size=2)(z[0]), each[0])
                torch.testing.assert_close(vmap(function, in_dims=2)(z[0].permute(1, 2, 0)), each[0])
                torch.testing.assert_close(vmap(function, out_dims=-1)(z[0]), each[0].movedim(0, -1))
                slopes = [torch.stack([way(function)(one) for one in z[0]]) for way in (jacrev, jacfwd)]
                for way, expected in zip((jacrev, jacfwd), slopes, strict=True):
                    torch.testing.assert_close(vmap(way(function))(z[0]), expected)
                leaf = z[0].clone().requires_grad_()
                (batched,) = torch.autograd.grad(vmap(function)(leaf).square().sum(), leaf, create_graph=True)
                (second,) = torch.autograd.grad(batched.square().sum(), leaf)
                expected = grad(lambda z, f=function: grad(lambda z: f(z).square().sum())(z).square().sum())
                torch.testing.assert_close(second, torch.stack([expected(one) for one in z[0]]))


def test_batches_of_targets_alone():
    z, losses = logits(), {"functional": sharmix.fenchel_young_loss, "alpha_relu": sharmix.alpha_relu_loss}
    batches = {
        "labels": torch.tensor([[1, 0, 3], [2, -100, 1]]),
        "soft": torch.stack([soft_targets(z), soft_targets(z).flip(-1)]),
    }
    with every_case() as case:
        for name, loss in (losses | {name: build(name).loss for name in NAMES}).items():
            for kind, targets in batches.items():
                for options in ({}, {"reduction": "none"}, {"reduction": "sum"}, {"label_smoothing": 0.1}):
                    with case(loss=name, targets=kind, **options):
                        found = vmap(lambda y, loss=loss, given=options: loss(z, y, **given))(targets)
                        torch.testing.assert_close(found, torch.stack([loss(z, y, **options) for y in targets]))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_parameter_alone_has_a_gradient_of_its_own_type_and_shape(dtype):
    with every_case() as case:
        for given in (torch.float64, torch.float32, torch.bfloat16):
            for shape in ((), (1,), (1, 1), (3, 1)):
                v = torch.full(shape, 1.5, dtype=given, requires_grad=True)
                z = logits(dtype=dtype)
                y = labels(z)
                for name, output in {
                    "q": sharmix.sharmix(z, v, 1.6),
                    "r": sharmix.sharmix(z, 1.3, v),
                    "temperature": sharmix.sharmix(z, 1.3, 1.6, v),
                    "alpha": sharmix.entmax(z, v),
                    "q of the loss": sharmix.fenchel_young_loss(z, y, v, 1.6),
                    "both of the smoothed loss": sharmix.fenchel_young_loss(z, y, v, v, label_smoothing=0.1),
                    "r of the soft loss": sharmix.fenchel_young_loss(z, soft_targets(z), 1.3, v),
                }.items():
                    with case(parameter=name, logits=dtype, given=given, shape=shape):
                        (gradient,) = torch.autograd.grad(output.float().square().sum(), v)
                        assert (gradient.dtype, gradient.shape) == (given, v.shape)
                        assert gradient.isfinite().all()
                        assert (gradient != 0).any()


# Modes and settings.


def test_grad_modes():
    with every_case() as case:
        for name, function in EVERYTHING.items():
            with case(function=name):
                leaf, plain = logits().requires_grad_(), logits()
                expected = function(leaf).detach()
                assert function(leaf).requires_grad
                assert not function(plain).requires_grad
                with torch.no_grad():
                    output = function(leaf)
                assert not output.requires_grad
                with torch.inference_mode():
                    output, inside = function(leaf), logits()
                assert output.is_inference()
                torch.testing.assert_close(output, expected)
                torch.testing.assert_close(function(inside), expected)
                with torch.inference_mode(), torch.inference_mode(False):
                    torch.testing.assert_close(gradient_of(function), gradient_of(function))


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


class OfItsOwn(torch.Tensor):
    """A subclass without rules of its own."""


def test_a_tensor_of_another_class_stays_one():
    with every_case() as case:
        for name, function in EVERYTHING.items():
            with case(function=name):
                z = logits().requires_grad_()
                output = function(z.as_subclass(OfItsOwn))
                assert type(output) is OfItsOwn
                output.square().sum().backward()
                torch.testing.assert_close(z.grad.as_subclass(torch.Tensor), gradient_of(function))
                assert type(function(nn.Parameter(logits()))) is torch.Tensor


@pytest.mark.medium
@pytest.mark.parametrize("way", ["plain", "transformed"])
def test_threads_do_not_meet(way):
    """A transform in one thread is none of another's business."""
    functions = list(EVERYTHING.values())
    expected = [gradient_of(function) for function in functions]
    failures = []

    def work(reverse):
        try:
            for _ in range(3):
                for function, gradient in zip(functions, expected, strict=True):
                    if reverse and way == "transformed":
                        found = grad(lambda z, f=function: f(z).square().sum())(logits())
                    else:
                        found = gradient_of(function)
                    torch.testing.assert_close(found, gradient)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number % 2,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


# Modules.


def trained(name):
    act = build(name)
    with torch.no_grad():
        for tensor in act.state_dict().values():
            tensor.add_(0.0625)
    return act


def reloaded(act, name, **options):
    file = io.BytesIO()
    torch.save(act.state_dict(), file)
    file.seek(0)
    other = build(name)
    other.load_state_dict(torch.load(file, weights_only=True), **options)
    return other


def test_a_copy_of_a_module_is_the_module():
    z = logits()
    with every_case() as case:
        for name in NAMES:
            act = trained(name)
            for way, made in {
                "deepcopy": lambda act=act: copy.deepcopy(act),
                "pickle": lambda act=act: pickle.loads(pickle.dumps(act)),
                "state dict": lambda act=act, name=name: reloaded(act, name),
                "assigned": lambda act=act, name=name: reloaded(act, name, assign=True),
                "evaluated": lambda act=act: copy.deepcopy(act).eval(),
                "shared": lambda act=act: copy.deepcopy(act).share_memory(),
                "frozen": lambda act=act: copy.deepcopy(act).requires_grad_(False),
                "averaged": lambda act=act: torch.optim.swa_utils.AveragedModel(act).module,
                "functional": lambda act=act: lambda z: functional_call(act, dict(act.state_dict()), (z,)),
            }.items():
                with case(name=name, way=way):
                    torch.testing.assert_close(made()(z), act(z))


@pytest.mark.parametrize("name", LEARNED)
def test_learned_parameters_are_parameters(name):
    """They can be replaced, stacked, parametrized, made a vector, and trained by any optimiser."""
    act, z = trained(name), logits()
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


def test_a_module_takes_the_type_it_is_given():
    with every_case() as case:
        for name in NAMES:
            for dtype in (torch.float16, torch.bfloat16, torch.float32):
                with case(name=name, dtype=dtype):
                    act = copy.deepcopy(build(name)).to(dtype)
                    z = logits(dtype=dtype).requires_grad_()
                    p, loss = act(z), act.loss(z, labels(z))
                    assert (p.dtype, loss.dtype) == (dtype, torch.float32)
                    torch.autograd.grad(loss + p.float().square().sum(), [z, *act.parameters()])
                    assert act(logits()).dtype == torch.float64
