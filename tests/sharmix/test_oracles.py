"""Agreement with the entmax package, beyond the rows of docs/from_entmax.md: the gradient by alpha, and its losses.

`test_map.py` compares both with fifty digits.
"""

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


def gradient(output, inputs):
    weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).reshape(output.shape)
    return torch.autograd.grad((output * weights).sum(), inputs)[0]


@pytest.mark.parametrize(("alpha", "loss"), [(2.0, sparsemax_loss), (1.5, entmax15_loss)])
def test_losses_and_their_gradients(alpha, loss, logits):
    ours, theirs = sharmix.entmax_loss(logits, LABELS, alpha, reduction="none"), loss(logits, LABELS)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-11)
    torch.testing.assert_close(gradient(ours, logits), gradient(theirs, logits), rtol=0, atol=1e-11)


@pytest.mark.parametrize("alpha", [1.2, 1.5, 1.8])
def test_gradient_of_the_map_to_alpha(alpha, logits):
    gradients = []
    for function in (sharmix.entmax, entmax.entmax_bisect):
        order = torch.tensor(alpha, dtype=torch.float64, requires_grad=True)
        gradients.append(gradient(function(logits, order), order))
    torch.testing.assert_close(*gradients, rtol=1e-7, atol=1e-10)


def test_the_registered_baseline_is_the_packages_own_bisection(logits):
    act = sharmix.build_activation("entmax_package", alpha=1.5)
    torch.testing.assert_close(act(logits), entmax.entmax_bisect(logits, alpha=1.5), rtol=0, atol=1e-12)
    expected = entmax_bisect_loss(logits, LABELS, alpha=1.5)
    torch.testing.assert_close(act.loss(logits, LABELS, reduction="none"), expected, rtol=0, atol=1e-11)
