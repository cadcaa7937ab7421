"""Tensors whose memory does not hold what they read, each tried in a process of its own, as it may crash.

`python -m tests.sharmix.strange_memory` prints a list of JSON: of each case what is strange, what it is, who reads it,
and "right", "wrong", "ValueError", ..., or "crash".
"""

import json
import os
import resource

import torch

import sharmix
from tests.sharmix import doors

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


# Torch's own multiplication crashes on a freed gradient, as cross_entropy does on freed soft targets; its softmax and
# its loss of classes refuse freed tensors.
READ_BY_A_KERNEL = ("sharmix", "outside the concave region", "an order for each row", "entmax", "sparsemax")
STRANGE = {
    "zero": zero,
    "negated": negated,
    "freed": freed,
    "imaginary": imaginary,
    "subclass": lambda like: like.clone().as_subclass(Subclass),
    "negated subclass": lambda like: negated(like).as_subclass(Subclass),
    "negated parameter": lambda like: torch.nn.Parameter(negated(like), requires_grad=False),
    "wrapper": Negative,
}
NO_INTEGERS = ("imaginary", "negated parameter", "wrapper")


def plain(kind, like):
    """What the strange tensor reads."""
    return torch.zeros_like(like) if kind == "zero" else like


def as_logits(kind, function):
    return function(STRANGE[kind](Z)), function(plain(kind, Z))


def as_gradient(kind, function):
    z = Z.clone().requires_grad_()
    output = function(z)
    gradient = doors.logits(*output.shape) if output.dim() else torch.tensor(1.5, dtype=output.dtype)
    expected = torch.autograd.grad(output, z, plain(kind, gradient), retain_graph=True)
    return torch.autograd.grad(output, z, STRANGE[kind](gradient)), expected


def as_saved(kind, function):
    """What the forward pass keeps comes back strange to the backward pass, as through a hook that moves it away."""
    z = Z.clone().requires_grad_()

    def gradient(unpack):
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor.detach().clone(), unpack):
            output = function(z)
        return torch.autograd.grad(output, z, doors.logits(*output.shape) if output.dim() else None)

    return gradient(lambda kept: kept if kept.dtype == torch.bool else STRANGE[kind](kept)), gradient(lambda kept: kept)


def as_parameter(kind, name, shape):
    value = torch.full(shape, PARAMETERS[name], dtype=torch.float64)

    def outputs(parameter):
        given = {name: parameter}
        return (
            sharmix.sharmix(Z, **given),
            sharmix.fenchel_young_loss(Z, doors.labels(Z), **given),
            sharmix.fenchel_young_loss(Z, doors.soft_targets(Z), **given),
        )

    return outputs(STRANGE[kind](value)), outputs(plain(kind, value))


def as_targets(kind, loss, targets):
    return loss(Z, STRANGE[kind](targets)), loss(Z, plain(kind, targets))


def cases():
    for kind in STRANGE:
        for name, function in doors.EVERYTHING.items():
            yield kind, "logits", name, as_logits, (kind, function)
            if kind != "freed" or name in READ_BY_A_KERNEL:
                yield kind, "gradient", name, as_gradient, (kind, function)
            if kind not in (*NO_INTEGERS, "zero", "freed"):  # which hold other numbers
                yield kind, "saved", name, as_saved, (kind, function)
        for name in PARAMETERS:
            for shape in ((), (3, 1)):
                if kind != "zero":  # 0 is no order
                    yield kind, f"{name} {shape}", "map and loss", as_parameter, (kind, name, shape)
        if kind in NO_INTEGERS:
            continue
        for name, loss in (("loss", sharmix.fenchel_young_loss), ("alpha_relu loss", sharmix.alpha_relu_loss)):
            yield kind, "labels", name, as_targets, (kind, loss, doors.labels(Z))
            if kind not in ("zero", "freed"):  # 0 is no distribution
                yield kind, "soft targets", name, as_targets, (kind, loss, doors.soft_targets(Z).clone())


def tried(function, arguments):
    """The outcome of one case, found by a child process."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            torch.testing.assert_close(*function(*arguments))
            outcome = "right"
        except AssertionError:
            outcome = "wrong"
        except Exception as error:
            outcome = type(error).__name__
        os.write(write, outcome.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        outcome = pipe.read()
    os.waitpid(child, 0)
    return outcome or "crash"


if __name__ == "__main__":
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    torch.testing.assert_close(zero(Z), torch.zeros_like(Z))  # loads here what every child would load
    print(json.dumps([[*named, tried(function, arguments)] for *named, function, arguments in cases()]))
