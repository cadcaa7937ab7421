"""α-ReLU: its formula, its corrected loss, and the threshold it calibrates once."""

import itertools
import math

import pytest
import torch

import sharmix
from tests.sharmix import reference
from tests.sharmix.cases import assert_errors_within, for_every

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


@pytest.mark.parametrize("alpha", [1.25, 1.5, 2.0, 2.5])
def test_loss_of_soft_targets_is_the_divergence_of_its_regulariser(alpha):
    """The maximum of p·z − τ/(α−1) Σp − Σp^α/(α(α−1)) over weights p ≥ 0, less the same at the target."""
    tau, z = 0.3, logits()
    y = torch.tensor([[0.5, 0.25, 0.25, 0.0], [0.0, 1.0, 0.0, 0.0], [0.25] * 4], dtype=torch.float64)

    def gain(weights):
        return (weights * (z - tau / (alpha - 1)) - weights**alpha / (alpha * (alpha - 1))).sum(-1)

    best = ((alpha - 1) * z - tau).clamp(min=0) ** (1 / (alpha - 1))
    loss = sharmix.alpha_relu_loss(z, y, alpha=alpha, tau=tau, reduction="none")
    torch.testing.assert_close(loss, gain(best) - gain(y))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.usefixtures("each_build")
@for_every(alpha=[1.25, 4 / 3, 1.5, 1.7, 2.0], classes=[1, 8, 37, 1000])
def test_loss_and_gradient_of_rows_of_any_length(dtype, alpha, classes):
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
    given = {"alpha": alpha, "tau": tau, "ignore_index": ignored}
    loss, mean = (sharmix.alpha_relu_loss(z, y, **given, reduction=reduction) for reduction in ("none", "mean"))
    torch.testing.assert_close(loss, torch.tensor(losses, dtype=dtype), **accuracy)
    torch.testing.assert_close(mean, torch.tensor(math.fsum(losses) / 8, dtype=dtype), **accuracy)
    (gradient,) = torch.autograd.grad(mean, z)
    torch.testing.assert_close(8 * gradient, torch.tensor(gradients, dtype=dtype), **accuracy)


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


def test_calibration_ends_with_the_first_batch_that_is_not_refused():
    first, of_the_rest, by_map = (sharmix.build_activation("alpha_relu", alpha=1.5).double() for _ in range(3))
    with pytest.raises(ValueError, match="99"):
        first.loss(logits(), torch.full((len(Z),), 99))
    assert first.state_dict()["tau"].isnan()
    first.loss(logits(), torch.tensor([-100, *Y[1:]]))  # rows that are ignored take no part in it
    of_the_rest.loss(logits()[1:], torch.tensor(Y[1:]))
    by_map(logits()[1:])
    tau = first.state_dict()["tau"].clone()
    assert tau == of_the_rest.state_dict()["tau"] == by_map.state_dict()["tau"]
    assert first.entropy_parameters() == []

    resumed = sharmix.build_activation("alpha_relu", alpha=1.5).double()
    resumed.load_state_dict(first.state_dict())
    for act in (first, resumed):
        act(logits() + 7)
        act.loss(logits() - 7, torch.tensor(Y))
        assert torch.equal(act.state_dict()["tau"], tau)
        torch.testing.assert_close(act(logits()), sharmix.alpha_relu(logits(), alpha=1.5, tau=tau))


def test_a_class_can_be_ignored_and_takes_no_part_in_the_threshold():
    y = torch.tensor(Y)
    acts = [sharmix.AlphaReLU().double() for _ in range(3)]
    weight = torch.tensor(Z, dtype=torch.float64).T
    expected = acts[0].loss(logits()[1:], y[1:])
    torch.testing.assert_close(acts[1].loss(logits(), y, ignore_index=Y[0]), expected)
    layer = acts[2].linear_loss(torch.eye(3, dtype=torch.float64), weight, None, y, ignore_index=Y[0])
    torch.testing.assert_close(layer, expected)
    assert acts[0].tau == acts[1].tau


def test_neither_a_wrong_option_nor_a_batch_of_no_rows_sets_a_threshold():
    act = sharmix.AlphaReLU().double()
    with pytest.raises(ValueError, match="label_smoothing"):
        act.loss(logits(), torch.tensor(Y), label_smoothing=2.0)
    assert act.tau.isnan()
    act.loss(logits(), torch.full((len(Z),), -100))
    act.loss(logits()[:0], torch.tensor(Y)[:0])
    assert not act.calibrated
    assert act(logits()).isfinite().all()


def test_the_state_of_no_threshold_takes_one_away_and_a_tensor_is_copied():
    tau = torch.tensor(0.3)
    first, second = sharmix.AlphaReLU(tau=tau), sharmix.AlphaReLU(tau=tau)
    first.load_state_dict({"tau": torch.tensor(0.5)})
    assert second.tau == tau == torch.tensor(0.3)
    first.load_state_dict(sharmix.AlphaReLU().state_dict())
    assert not first.calibrated
    assert first(logits()).isfinite().all()


def test_a_threshold_that_other_code_sets_is_used():
    trained, z = sharmix.AlphaReLU(tau=0.3), logits()
    averaged = torch.optim.swa_utils.AveragedModel(sharmix.AlphaReLU(), use_buffers=True)
    averaged.update_parameters(trained)
    fresh = sharmix.AlphaReLU().eval()
    for p in (averaged.eval()(z), torch.func.functional_call(fresh, {"tau": trained.tau}, z)):
        assert torch.equal(p, trained(z))
    assert torch.equal(averaged.module.loss(z, torch.tensor(Y)), trained.loss(z, torch.tensor(Y)))
    assert repr(averaged.module) == repr(trained)
    with pytest.raises(RuntimeError, match="no threshold yet"):
        fresh(z)


def test_a_learned_threshold_has_the_gradient_of_the_entropy():
    tau = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda z, tau: sharmix.alpha_relu_loss(z, torch.tensor(Y), tau=tau), (logits().requires_grad_(), tau)
    )


@pytest.mark.parametrize("wrong", [{"reduction": "none"}, {"label_smoothing": 2.0}, {"labels": 4}])
def test_a_refused_loss_of_a_layer_sets_no_threshold(wrong):
    act, targets = sharmix.AlphaReLU(), torch.full((3,), wrong.pop("labels", 1))
    with pytest.raises(ValueError, match=r"is not allowed|out of range"):
        act.linear_loss(torch.ones(3, 5), torch.eye(4, 5), None, targets, **wrong)
    assert not act.calibrated
    assert act.tau.isnan()
    for hidden in ([[1.0]], torch.ones(3, 5, dtype=torch.int64)):
        with pytest.raises(TypeError, match="hidden"):
            act.linear_loss(hidden, torch.eye(4, 5), None, torch.zeros(3).long())


def test_a_layer_of_meta_tensors_has_a_loss_before_there_is_a_threshold():
    layer = torch.ones(3, 5, device="meta"), torch.ones(4, 5, device="meta"), None
    with torch.device("meta"):
        act = sharmix.AlphaReLU()
        assert act.linear_loss(*layer, torch.zeros(3).long()).shape == ()
    assert not act.calibrated
