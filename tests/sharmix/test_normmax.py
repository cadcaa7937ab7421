"""α-normmax, argmax of p·z − ‖p‖_α: SharMiX on the border of its concave region, and the entmax package's own."""

import entmax
import pytest
import torch
from entmax.losses import NormmaxBisectLoss

import sharmix
from tests.sharmix.cases import for_every
from tests.sharmix.doors import labels, logits


def sample():
    for classes in (1, 2, 5, 40):
        for scale in (0.1, 1.0, 5.0, 30.0):
            yield scale * logits(6, classes)


@pytest.mark.usefixtures("each_solver")
def test_the_published_values_of_the_package():
    z = torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0])
    for alpha, expected in ((2, [0.0, 0.0239, 0.1746, 0.3254, 0.4761]), (1000, [0.0, 0.0, 0.3330, 0.3334, 0.3336])):
        torch.testing.assert_close(sharmix.normmax(z, alpha=alpha), torch.tensor(expected), rtol=0, atol=5e-5)


def test_the_usual_alpha_is_the_packages():
    z, y = logits(), labels(logits())
    expected = entmax.normmax_bisect(z, n_iter=200)
    for found in (sharmix.normmax(z), sharmix.Normmax()(z), sharmix.build_activation("normmax")(z)):
        torch.testing.assert_close(found, expected)
    expected = NormmaxBisectLoss(n_iter=200)(z, y)
    for loss in (sharmix.normmax_loss, sharmix.NormmaxLoss(), sharmix.Normmax().loss):
        torch.testing.assert_close(loss(z, y), expected)


@pytest.mark.medium
@for_every(alpha=(1.01, 1.2, 1.5, 1.75, 2.0, 3.0, 5.0, 10.0), z=sample())
def test_it_is_sharmix_where_several_maxima_would_begin(alpha, z):
    at = alpha, 2 - 1 / alpha, alpha - 1
    expected = entmax.normmax_bisect(z, alpha, n_iter=200)
    for found in (sharmix.normmax(z, alpha=alpha), sharmix.sharmix(z, *at)):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    y = labels(z)  # the contract test holds soft targets and the gradients
    expected = NormmaxBisectLoss(alpha, n_iter=200)(z, y)
    for found in (sharmix.normmax_loss(z, y, alpha=alpha), sharmix.fenchel_young_loss(z, y, *at)):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
