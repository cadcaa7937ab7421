"""Agreement with independent implementations: torch, and the entmax package where it is right."""

import entmax
import pytest
import torch
from entmax.losses import entmax15_loss, entmax_bisect_loss, sparsemax_loss

import sharmix

LABELS = torch.tensor([3, 0, 7, 7, 19, 4])


@pytest.fixture
def logits():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(6, 20, dtype=torch.float64, generator=generator).mul(2).requires_grad_()


def _gradient(output, logits):
    weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).reshape(output.shape)
    return torch.autograd.grad((output * weights).sum(), logits)[0]


MAPS = {
    "softmax": (lambda z: torch.softmax(z, -1), lambda z: sharmix.entmax(z, alpha=1)),
    "sparsemax": (entmax.sparsemax, sharmix.sparsemax),
    "entmax15": (entmax.entmax15, sharmix.entmax),
    "bisect 1.25": (
        lambda z: entmax.entmax_bisect(z, alpha=1.25),
        lambda z: sharmix.entmax(z, 1.25),
    ),
    "bisect 1.75": (
        lambda z: entmax.entmax_bisect(z, alpha=1.75),
        lambda z: sharmix.entmax(z, 1.75),
    ),
}


@pytest.mark.parametrize("name", MAPS)
def test_maps_and_their_gradients(name, logits):
    theirs, ours = (function(logits) for function in MAPS[name])
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    torch.testing.assert_close(_gradient(ours, logits), _gradient(theirs, logits), rtol=1e-9, atol=1e-11)


def _ours(alpha):
    return lambda z, y: sharmix.fenchel_young_loss(z, y, q=alpha, r=alpha, reduction="none")


LOSSES = {
    "cross entropy": (lambda z, y: torch.nn.functional.cross_entropy(z, y, reduction="none"), 1.0),
    "sparsemax": (sparsemax_loss, 2.0),
    "entmax15": (entmax15_loss, 1.5),
    "bisect 1.25": (lambda z, y: entmax_bisect_loss(z, y, alpha=1.25), 1.25),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_their_gradients(name, logits):
    theirs, alpha = LOSSES[name]
    ours = _ours(alpha)(logits, LABELS)
    expected = theirs(logits, LABELS)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-11)
    torch.testing.assert_close(_gradient(ours, logits), _gradient(expected, logits), rtol=0, atol=1e-11)


@pytest.mark.parametrize("alpha", [1.2, 1.5, 1.8])
def test_gradient_of_the_map_to_alpha(alpha, logits):
    gradients = []
    for function in (sharmix.entmax, entmax.entmax_bisect):
        order = torch.tensor(alpha, dtype=torch.float64, requires_grad=True)
        gradients.append(_gradient(function(logits, order), order))
    torch.testing.assert_close(*gradients, rtol=1e-7, atol=1e-10)


def test_the_registered_baseline_is_the_packages_own_bisection(logits):
    act = sharmix.build_activation("entmax_package", alpha=1.5)
    expected = entmax.entmax_bisect(logits, alpha=1.5)
    torch.testing.assert_close(act(logits), expected, rtol=0, atol=1e-12)
    loss = act.loss(logits, LABELS, reduction="none")
    expected = entmax_bisect_loss(logits, LABELS, alpha=1.5)
    torch.testing.assert_close(loss, expected, rtol=0, atol=1e-11)
