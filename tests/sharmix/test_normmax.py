"""α-normmax, argmax of p·z − ‖p‖_α: SharMiX on the border of its concave region, and the entmax package's own."""

import math

import entmax
import pytest
import torch
from entmax.losses import NormmaxBisectLoss, normmax_bisect_loss

import sharmix
from tests.sharmix.cases import assert_errors_within, every_case
from tests.sharmix.doors import labels, logits, soft_targets

ALPHAS = [1.01, 1.2, 1.5, 1.75, 2.0, 3.0, 5.0, 10.0]


def sample():
    for classes in (1, 2, 5, 40):
        for scale in (0.1, 1.0, 5.0, 30.0):
            yield scale * logits(6, classes)


def norm(p, alpha):
    """‖p‖_α of each row [..., classes]; p^α itself can underflow."""
    largest = p.amax(-1, keepdim=True)
    return largest.squeeze(-1) * ((p / largest) ** alpha).sum(-1) ** (1 / alpha)


@pytest.mark.usefixtures("each_solver")
def test_the_published_values_of_the_package():
    z = torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0])
    for alpha, expected in ((2, [0.0, 0.0239, 0.1746, 0.3254, 0.4761]), (1000, [0.0, 0.0, 0.3330, 0.3334, 0.3336])):
        torch.testing.assert_close(sharmix.normmax(z, alpha), torch.tensor(expected), rtol=0, atol=5e-5)


@pytest.mark.medium
@pytest.mark.usefixtures("each_solver")
def test_the_map_and_its_gradient_are_the_packages():
    errors, slopes = {}, {}
    for alpha in ALPHAS:
        for z in sample():
            leaves = [z.clone().requires_grad_() for _ in range(2)]
            ours, theirs = sharmix.normmax(leaves[0], alpha), entmax.normmax_bisect(leaves[1], alpha, n_iter=200)
            errors[alpha, z.shape[1], z.std().item()] = (ours - theirs).abs().max().item()
            weights = torch.linspace(-1, 1, z.shape[1], dtype=z.dtype)
            mine, other = (
                torch.autograd.grad((p * weights).sum(), leaf)[0]
                for p, leaf in zip((ours, theirs), leaves, strict=True)
            )
            slopes[alpha, z.shape[1], z.std().item()] = ((mine - other).abs().max() / (1 + other.abs().max())).item()
    assert_errors_within(errors, 1e-13)
    assert_errors_within(slopes, 1e-11)


@pytest.mark.medium
@pytest.mark.usefixtures("each_solver")
def test_the_loss_and_its_gradient_are_the_packages():
    errors = {}
    for alpha in ALPHAS:
        for z in sample():
            y, z = labels(z), z.clone().requires_grad_()
            ours = sharmix.normmax_loss(z, y, alpha, reduction="none")
            theirs = normmax_bisect_loss(z.detach(), y, alpha, 200)
            errors[alpha, z.shape[1], z.std().item(), "value"] = (ours - theirs).abs().max().item()
            (gradient,) = torch.autograd.grad(ours.sum(), z)
            expected = sharmix.normmax(z, alpha) - torch.nn.functional.one_hot(y, z.shape[1])
            errors[alpha, z.shape[1], z.std().item(), "gradient"] = (gradient - expected).abs().max().item()
    assert_errors_within(errors, 1e-12)


def test_the_usual_alpha_is_the_packages():
    z, y = logits(), labels(logits())
    expected = entmax.normmax_bisect(z, n_iter=200)
    for found in (sharmix.normmax(z), sharmix.Normmax()(z), sharmix.build_activation("normmax")(z)):
        torch.testing.assert_close(found, expected)
    expected = NormmaxBisectLoss(n_iter=200)(z, y)
    for loss in (sharmix.normmax_loss, sharmix.NormmaxLoss(), sharmix.Normmax().loss):
        torch.testing.assert_close(loss(z, y), expected)


def test_a_learned_alpha_starts_inside_its_range():
    assert sharmix.Normmax(learned=True).alpha == sharmix.NormmaxLoss(learned=True).activation.alpha == 1.5


def test_reductions_are_those_of_the_packages_module():
    z, y = logits(6, 5), torch.tensor([1, 0, 3, 2, 2, 4])
    for mine, theirs in (("mean", "elementwise_mean"), ("sum", "sum"), ("none", "none")):
        for ignored in (-100, 2):
            expected = NormmaxBisectLoss(alpha=1.5, n_iter=200, ignore_index=ignored, reduction=theirs)(z, y)
            found = sharmix.normmax_loss(z, y, 1.5, ignore_index=ignored, reduction=mine)
            torch.testing.assert_close(found, expected)


@pytest.mark.medium
def test_it_is_sharmix_where_several_maxima_would_begin():
    with every_case() as case:
        for alpha in ALPHAS:
            for z in sample():
                with case(alpha=alpha, shape=z.shape):
                    at = alpha, 2 - 1 / alpha, alpha - 1
                    torch.testing.assert_close(sharmix.normmax(z, alpha), sharmix.sharmix(z, *at), rtol=0, atol=1e-14)
                    for y in (labels(z), soft_targets(z)):
                        found = sharmix.normmax_loss(z, y, alpha)
                        torch.testing.assert_close(found, sharmix.fenchel_young_loss(z, y, *at), rtol=0, atol=1e-12)


@pytest.mark.medium
def test_no_other_distribution_scores_higher():
    generator = torch.Generator().manual_seed(1)
    with every_case() as case:
        for alpha in [*ALPHAS, 100.0, 1000.0]:
            for z in sample():
                with case(alpha=alpha, shape=z.shape):
                    p = sharmix.normmax(z, alpha)
                    torch.testing.assert_close(p.sum(-1), torch.ones(6, dtype=p.dtype))
                    others = torch.rand(200, *z.shape, generator=generator, dtype=p.dtype)
                    others = others / others.sum(-1, keepdim=True)
                    best = (p * z).sum(-1) - norm(p, alpha)
                    for q in (others, 0.999 * p + 0.001 * others):
                        assert ((q * z).sum(-1) - norm(q, alpha) <= best + 1e-12).all()
                    loss = sharmix.normmax_loss(z, labels(z), alpha, reduction="none")
                    at_label = z.gather(-1, labels(z).unsqueeze(-1)).squeeze(-1)
                    torch.testing.assert_close(loss, best + 1 - at_label, rtol=0, atol=1e-12)


def test_the_loss_is_zero_at_its_own_map_and_never_negative():
    for alpha in ALPHAS:
        for z in sample():
            assert (sharmix.normmax_loss(z, labels(z), alpha, reduction="none") >= 0).all()
            own = sharmix.normmax_loss(z, sharmix.normmax(z, alpha), alpha, reduction="none")
            assert (own.abs() <= 1e-11).all()


@pytest.mark.medium
@pytest.mark.usefixtures("each_solver")
def test_alpha_is_learned():
    """The package gives it no gradient."""
    z, y = logits(3, 5).requires_grad_(), torch.tensor([1, 0, 3])
    with every_case() as case:
        for start in (1.2, 1.5, 2.0, 3.0):
            for shape in ((), (3, 1)):
                with case(alpha=start, shape=shape):
                    alpha = torch.full(shape, start, dtype=torch.float64, requires_grad=True)
                    assert torch.autograd.gradcheck(sharmix.normmax, (z, alpha))
                    assert torch.autograd.gradcheck(lambda z, a: sharmix.normmax_loss(z, y, a), (z, alpha))


def test_an_alpha_for_each_row_and_any_dimension():
    z = logits(3, 4, 5)
    with every_case() as case:
        for dim in (-1, 0, 1, 2):
            shape = [1 if place == dim % 3 else size for place, size in enumerate(z.shape)]
            alpha = torch.linspace(1.1, 3.0, math.prod(shape), dtype=torch.float64).reshape(shape)
            with case(dim=dim):
                found = sharmix.normmax(z, alpha, dim=dim)
                rows = zip(z.movedim(dim, -1).reshape(-1, z.shape[dim]), alpha.flatten().tolist(), strict=True)
                expected = torch.stack([sharmix.normmax(row, value) for row, value in rows])
                torch.testing.assert_close(found.movedim(dim, -1).reshape(expected.shape), expected)


def test_a_rounded_alpha_stays_within_the_concave_region():
    """2 − 1/α of a float32 α, were it rounded, would leave it, and cost a search for several maxima."""
    z = logits(2, 5)
    for alpha in (1.1, 1.3, 1.7, 2.2, 7.3):
        single = torch.tensor(alpha)
        torch.testing.assert_close(sharmix.normmax(z, single), sharmix.normmax(z, single.item()), rtol=0, atol=1e-14)


def test_an_order_that_is_not_allowed_is_named():
    z = logits()
    with every_case() as case:
        for alpha in (1.0, 0.5, -1.0, math.inf, math.nan):
            for order in (alpha, torch.tensor(alpha), torch.tensor([[1.5], [alpha], [2.0]])):
                for function in (sharmix.normmax, lambda z, a: sharmix.normmax_loss(z, labels(z), a)):
                    with case(alpha=order), pytest.raises(ValueError, match=rf"alpha.*{alpha}"):
                        function(z, order)


def test_the_registered_activation_is_the_function():
    z = logits()
    act = sharmix.build_activation("normmax", alpha=1.75)
    assert torch.equal(act(z), sharmix.normmax(z, 1.75))
    for y in (labels(z), soft_targets(z)):
        torch.testing.assert_close(act.loss(z, y), sharmix.normmax_loss(z, y, 1.75))
    with pytest.raises(ValueError, match=r"alpha.*0\.5"):
        sharmix.build_activation("normmax", alpha=0.5)
