"""A run does not import what torchmetrics would, and nothing is amiss after it."""

import subprocess
import sys

import pytest

AFTERWARDS = """
import sys
import experiments.run
spared = {"matplotlib", "scipy", "torchvision", "transformers"}
assert not spared & set(sys.modules), "torchmetrics finds them in other ways now, or is imported before"

import lightning.pytorch, matplotlib.pyplot, scipy.stats, torch, torchmetrics.classification, torchvision
accuracy = torchmetrics.classification.MulticlassAccuracy(3)
assert accuracy(torch.tensor([0, 1, 2]), torch.tensor([0, 1, 2])) == 1
assert torchvision.models.resnet18().eval()(torch.zeros(1, 3, 32, 32)).shape == (1, 1000)
assert torchvision.ops.nms(torch.tensor([[0.0, 0, 1, 1]]), torch.ones(1), 0.5).tolist() == [0]
assert scipy.stats.norm.cdf(0) == 0.5
matplotlib.pyplot.figure()
"""


@pytest.mark.medium
def test_afterwards_all_work():
    subprocess.run([sys.executable, "-c", AFTERWARDS], check=True)
