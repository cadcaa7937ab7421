"""Tensors whose memory does not hold what they read: they are read as torch reads them, or refused.

A kernel that reads the memory itself gives wrong numbers here, or crashes the process.
"""

import pytest
import torch

import sharmix
from tests.sharmix import doors
from tests.sharmix.cases import every_case, for_every

pytestmark = pytest.mark.medium
PARAMETERS = {"q": 1.3, "r": 1.6, "temperature": 0.8}
Z = doors.logits()


def zero(like):
    """Zeros without memory, as torch's forward mode makes them."""
    return torch._efficientzerotensor(like.shape, dtype=like.dtype)


def negated(like):
    """`like`, kept in memory with the other sign, as the imaginary part of conj() is."""
    return torch._neg_view(-like)


def freed(like):
    """A tensor whose memory was given back, as FSDP does."""
    tensor = like.clone()
    tensor.untyped_storage().resize_(0)
    return tensor


def imaginary(like):
    """The imaginary part of a conjugate: every other number in memory, with the other sign."""
    return torch.complex(torch.zeros_like(like), -like).conj().imag


class Subclass(torch.Tensor):
    pass


class Negative(torch.Tensor):
    """A wrapper around the negative of a tensor, which it shows to no one but to operators."""

    @staticmethod
    def __new__(cls, like):
        kind = {"dtype": like.dtype, "device": like.device, "requires_grad": like.requires_grad}
        return torch.Tensor._make_wrapper_subclass(cls, like.shape, **kind)

    def __init__(self, like):
        self.negative = -like.detach()

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), keywords=None):
        def unwrapped(one):
            return -one.negative if isinstance(one, cls) else one

        arguments = torch.utils._pytree.tree_map(unwrapped, arguments)
        return function(*arguments, **torch.utils._pytree.tree_map(unwrapped, keywords or {}))


STRANGE = {
    "zero": zero,
    "negated": negated,
    "imaginary": imaginary,
    "subclass": lambda like: like.clone().as_subclass(Subclass),
    "wrapper": Negative,
}
NO_INTEGERS = ("imaginary", "wrapper")


def of_gradient(function):
    def compute(made):
        z = Z.clone().requires_grad_()
        output = function(z)
        gradient = doors.logits(*output.shape) if output.dim() else torch.tensor(1.5, dtype=output.dtype)
        return torch.autograd.grad(output, z, made(gradient))

    return compute


def of_saved(function):
    """What the forward pass keeps comes back strange to the backward pass, as through a hook that moves it away."""

    def compute(made):
        z = Z.clone().requires_grad_()
        unpack = lambda kept: kept if kept.dtype == torch.bool else made(kept)  # noqa: E731
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor.detach().clone(), unpack):
            output = function(z)
        return torch.autograd.grad(output, z, doors.logits(*output.shape) if output.dim() else None)

    return compute


def of_parameter(name, shape):
    value = torch.full(shape, PARAMETERS[name], dtype=torch.float64)

    def compute(made):
        given = {name: made(value)}
        losses = (sharmix.fenchel_young_loss(Z, y, **given) for y in (doors.labels(Z), doors.soft_targets(Z)))
        return sharmix.sharmix(Z, **given), *losses

    return compute


def computations(kind):
    """What is strange, for whom, and the computation by what makes a tensor strange."""
    for name, function in doors.EVERYTHING.items():
        yield "logits", name, lambda made, f=function: f(made(Z))
        # Torch's own multiplication crashes on a freed gradient, and cross_entropy on freed soft targets.
        if kind != "freed" or (name in doors.MAPS and name not in ("alpha_relu", "orders above 2")):
            yield "gradient", name, of_gradient(function)
        if kind not in (*NO_INTEGERS, "zero", "freed"):  # which hold other numbers
            yield "saved", name, of_saved(function)
    for name in PARAMETERS:
        for shape in ((), (3, 1)):
            if kind != "zero":  # 0 is no order
                yield f"{name} {shape}", "map and loss", of_parameter(name, shape)
    for name, loss in (("loss", sharmix.fenchel_young_loss), ("alpha_relu loss", sharmix.alpha_relu_loss)):
        if kind != "zero":  # there is no mean of rows without weight
            yield "weight", name, lambda made, f=loss: f(Z, doors.labels(Z), weight=made(torch.ones(Z.shape[-1])))
        if kind not in NO_INTEGERS:
            yield "labels", name, lambda made, f=loss: f(Z, made(doors.labels(Z)))
        if kind not in (*NO_INTEGERS, "zero", "freed"):  # 0 is no distribution
            yield "soft targets", name, lambda made, f=loss: f(Z, made(doors.soft_targets(Z).clone()))


@pytest.mark.parametrize("kind", STRANGE)
def test_memory_is_read_as_torch_reads_it(kind):
    plain = torch.zeros_like if kind == "zero" else torch.clone
    with every_case() as case:
        for what, function, compute in computations(kind):
            with case(what=what, function=function):
                torch.testing.assert_close(compute(STRANGE[kind]), compute(plain))


@for_every("what, function, compute", computations("freed"))
def test_freed_memory_is_refused(what, function, compute):
    with pytest.raises((RuntimeError, ValueError)):
        compute(freed)
