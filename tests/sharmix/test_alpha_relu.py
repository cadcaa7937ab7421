"""α-ReLU: its formula, its corrected loss, and the threshold it calibrates once."""

import itertools
import math

import pytest
import torch
from scipy.optimize import minimize_scalar

import sharmix
from tests.sharmix import reference
from tests.sharmix.cases import assert_errors_within, every_case

Z = [[1.5, 0.25, -0.5, 0.9], [0.1, 3.0, 0.75, -4.0], [-1.0, -2.0, -3.0, -0.5]]
Y = [0, 3, 1]


def logits():
    return torch.tensor(Z, dtype=torch.float64)


def test_map_is_the_clipped_power():
    errors = {}
    for alpha, tau, wants_gradient in itertools.product([1.25, 1.5, 2.0, 2.5], [-0.5, 0.0, 0.3], [False, True]):
        p = sharmix.alpha_relu(logits().requires_grad_(wants_gradient), alpha=alpha, tau=tau)
        expected = [[max((alpha - 1) * z - tau, 0.0) ** (1 / (alpha - 1)) for z in row] for row in Z]
        errors[alpha, tau, wants_gradient] = (p - torch.tensor(expected, dtype=torch.float64)).abs().max().item()
    assert_errors_within(errors, 1e-14)


def test_loss_at_three_halves_is_the_printed_formula():
    tau = 0.3
    u = (logits() / 2 - tau).clamp(min=0)
    agreement = logits()[torch.arange(3), Y]
    expected = (u**3).sum(-1) / 1.5 - agreement + 2 * tau + 4 / 3
    actual = sharmix.alpha_relu_loss(logits(), torch.tensor(Y), tau=tau, reduction="none")
    torch.testing.assert_close(actual, expected)


@pytest.mark.medium
@pytest.mark.parametrize("alpha", [1.25, 1.5, 2.0, 2.5])
@pytest.mark.parametrize("target", ["hard", "soft"])
def test_loss_is_the_divergence_of_its_regulariser_over_non_negative_weights(alpha, target):
    """Each class on its own: max of p·(z - tau/(alpha-1)) - p^alpha/(alpha(alpha-1))."""
    tau, curvature = 0.3, alpha * (alpha - 1)
    soft = [[0.5, 0.25, 0.25, 0.0], [0.0, 1.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]]
    distributions = soft if target == "soft" else torch.eye(4)[Y].tolist()

    def gain(weight, z):
        return weight * (z - tau / (alpha - 1)) - weight**alpha / curvature

    expected = []
    for row, distribution in zip(Z, distributions, strict=True):
        divergence = 0.0
        for z, y in zip(row, distribution, strict=True):
            best = minimize_scalar(
                lambda w, z=z: -gain(w, z),
                bounds=(0, 1e4),
                options={"xatol": 1e-10},
                method="bounded",
            )
            divergence += max(-best.fun, 0.0) - gain(y, z)
        expected.append(divergence)
    y = torch.tensor(soft, dtype=torch.float64) if target == "soft" else torch.tensor(Y)
    actual = sharmix.alpha_relu_loss(logits(), y, alpha=alpha, tau=tau, reduction="none")
    assert actual.tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("alpha", [1.25, 1.5, 2.0])
def test_gradient_is_p_minus_y_and_the_printed_one_is_not(alpha):
    z = logits().requires_grad_()
    y = torch.eye(4, dtype=torch.float64)[Y]
    loss = sharmix.alpha_relu_loss(z, torch.tensor(Y), alpha=alpha, tau=0.3, reduction="sum")
    p = sharmix.alpha_relu(z, alpha=alpha, tau=0.3)
    (gradient,) = torch.autograd.grad(loss, z)
    torch.testing.assert_close(gradient, (p - y).detach())

    # Eq. (2) of the paper: (p - e_y)·z + H(p), with H = sum(p - p^alpha)/(alpha(alpha-1)).
    printed = ((p - y) * z).sum() + (p - p**alpha).sum() / (alpha * (alpha - 1))
    (of_printed,) = torch.autograd.grad(printed, z)
    assert (of_printed - gradient).abs().max() > 0.1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.usefixtures("each_build")
def test_loss_and_gradient_of_rows_of_any_length(dtype):
    with every_case() as case:
        for alpha, classes in itertools.product([1.25, 4 / 3, 1.5, 1.7, 2.0], [1, 8, 37, 1000]):
            with case(alpha=alpha, classes=classes):
                assert_loss_and_gradient(alpha, classes, dtype)


def assert_loss_and_gradient(alpha, classes, dtype):
    """One class of one row at a time, in plain floats; every fifth row is ignored."""
    tau, ignored = 0.1, classes
    generator = torch.Generator().manual_seed(classes)
    z = (2 * torch.randn(11, classes, generator=generator)).to(dtype).requires_grad_()
    y = torch.randint(classes, (11,), generator=generator)
    y[::5] = ignored
    losses, gradients = [], []
    for row, label in zip(z.tolist(), y.tolist(), strict=True):
        base = [max((alpha - 1) * value - tau, 0.0) for value in row]
        conjugate = math.fsum(u ** (alpha / (alpha - 1)) for u in base) / alpha
        counts = label != ignored
        losses.append(conjugate - row[label] + (tau + 1 / alpha) / (alpha - 1) if counts else 0.0)
        gradients.append([counts * (u ** (1 / (alpha - 1)) - (place == label)) for place, u in enumerate(base)])
    accuracy = {"rtol": 2e-6, "atol": 2e-6} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-12}
    loss = sharmix.alpha_relu_loss(z, y, alpha=alpha, tau=tau, ignore_index=ignored, reduction="none")
    torch.testing.assert_close(loss, torch.tensor(losses, dtype=dtype), **accuracy)
    mean = sharmix.alpha_relu_loss(z, y, alpha=alpha, tau=tau, ignore_index=ignored)
    torch.testing.assert_close(mean, torch.tensor(math.fsum(losses) / 8, dtype=dtype), **accuracy)
    (gradient,) = torch.autograd.grad(mean, z)
    torch.testing.assert_close(8 * gradient, torch.tensor(gradients, dtype=dtype), **accuracy)


def test_a_learned_threshold_has_the_gradient_of_the_entropy():
    tau = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda z, tau: sharmix.alpha_relu_loss(z, torch.tensor(Y), tau=tau), (logits().requires_grad_(), tau)
    )


def test_loss_is_zero_exactly_where_the_map_returns_the_target():
    # alpha = 1.5: u = 1 on the label, 0 elsewhere.
    z = torch.tensor([[2.6, 0.6, -3.0]], dtype=torch.float64)
    torch.testing.assert_close(sharmix.alpha_relu(z, tau=0.3), torch.eye(3).double()[:1])
    assert sharmix.alpha_relu_loss(z, torch.tensor([0]), tau=0.3).item() == pytest.approx(0, abs=1e-15)
    for change in ([0.1, 0, 0], [-0.1, 0, 0], [0, 0.2, 0]):
        assert sharmix.alpha_relu_loss(z + torch.tensor(change), torch.tensor([0]), tau=0.3) > 1e-4


@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_alpha_must_exceed_one(alpha):
    for build in (
        lambda: sharmix.alpha_relu(logits(), alpha=alpha),
        lambda: sharmix.alpha_relu_loss(logits(), torch.tensor(Y), alpha=alpha),
        lambda: sharmix.build_activation("alpha_relu", alpha=alpha),
    ):
        with pytest.raises(ValueError, match=rf"(?s)alpha.*{alpha}"):
            build()


def _mean_threshold(rows, alpha):
    """Mean over rows of tau in p_i = ((alpha-1) z_i - tau)^(1/(alpha-1)), from fifty digits."""
    thresholds = []
    for row in rows:
        p = reference.sharmix(row, alpha, alpha)
        largest = max(range(len(row)), key=row.__getitem__)
        thresholds.append((alpha - 1) * row[largest] - float(p[largest]) ** (alpha - 1))
    return math.fsum(thresholds) / len(thresholds)


@pytest.mark.parametrize("alpha", [1.5, 2.0])
@pytest.mark.parametrize("offset", [0.0, 5.0])
def test_the_first_training_batch_sets_tau_to_the_mean_threshold_of_entmax(alpha, offset):
    act = sharmix.build_activation("alpha_relu", alpha=alpha).double()
    z = logits() + offset
    p = act(z)
    tau = _mean_threshold(z.tolist(), alpha)
    assert act.state_dict()["tau"].item() == pytest.approx(tau, abs=1e-12)
    torch.testing.assert_close(p, sharmix.alpha_relu(z, alpha=alpha, tau=tau))


def test_calibration_is_frozen_after_the_first_batch_whichever_door_saw_it():
    by_map, by_loss = (sharmix.build_activation("alpha_relu", alpha=1.5).double() for _ in range(2))
    by_map(logits())
    by_loss.loss(logits(), torch.tensor(Y))
    assert torch.equal(by_map.state_dict()["tau"], by_loss.state_dict()["tau"])
    before = by_map.state_dict()["tau"].clone()
    by_map(logits() + 7)
    by_map.loss(logits() - 7, torch.tensor(Y))
    assert torch.equal(by_map.state_dict()["tau"], before)
    assert by_map.entropy_parameters() == []


def test_tau_survives_the_state_dict():
    trained = sharmix.build_activation("alpha_relu", alpha=1.5).double()
    expected = trained(logits())
    restored = sharmix.build_activation("alpha_relu", alpha=1.5).double()
    restored.load_state_dict(trained.state_dict())
    assert torch.equal(restored.eval()(logits()), expected)
    # A resumed run goes on in training mode, on another batch: still frozen.
    restored.train()(logits() + 3)
    assert torch.equal(restored(logits()), expected)


def test_a_batch_that_is_refused_calibrates_nothing():
    act = sharmix.build_activation("alpha_relu", alpha=1.5).double()
    with pytest.raises(ValueError, match="99"):
        act.loss(logits(), torch.full((len(logits()),), 99))
    assert act.state_dict()["tau"].isnan()


def test_ignored_rows_take_no_part_in_the_calibration():
    act, kept = (sharmix.build_activation("alpha_relu", alpha=1.5).double() for _ in range(2))
    targets = torch.tensor(Y)
    targets[0] = -100
    act.loss(logits(), targets)
    kept.loss(logits()[1:], targets[1:])
    assert torch.equal(act.state_dict()["tau"], kept.state_dict()["tau"])
