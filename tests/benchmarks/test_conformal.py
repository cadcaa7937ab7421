"""Our scores and sets beside TorchCP's own, and its predictor with our score."""

import functools
import warnings

import pytest
import torch

from benchmarks.conformal import import_torchcp, measure
from sharmix.conformal import SupportPredictor, support_scores

pytestmark = pytest.mark.medium


@pytest.fixture(scope="module")
def torchcp():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_torchcp()


@pytest.mark.usefixtures("torchcp")
def test_scores_are_those_of_torchcp_times_a_constant():
    assert (measure(20, 12, 1)["largest relative difference"] < 1e-5).all()


@pytest.mark.filterwarnings("ignore:The 'temperature' parameter is deprecated")
def test_its_predictor_takes_our_score_and_makes_our_sets(torchcp):
    z = 3 * torch.randn(300, 6, generator=torch.Generator().manual_seed(0))
    y = torch.multinomial(z.softmax(-1), 1, generator=torch.Generator().manual_seed(1)).squeeze(-1)
    for q, r in ((1.5, 1.5), (1.25, 1.5), (1.3, 2.0)):
        theirs = torchcp.SplitPredictor(functools.partial(support_scores, q=q, r=r), alpha=0.2)
        theirs.calculate_threshold(z[:100], y[:100])
        ours = SupportPredictor(q, r).calibrate(z[:100], y[:100], 0.8)
        assert theirs.predict_with_logits(z[100:]).bool().equal(ours.sets(z[100:]))
        assert theirs.q_hat.item() == pytest.approx(ours.temperature.item(), rel=1e-6)
