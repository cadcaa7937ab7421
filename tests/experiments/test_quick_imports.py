"""The quick import spares what it says, and nothing is amiss after it."""

import importlib
import subprocess
import sys

import pytest

from experiments.quick_imports import _import_without

AFTERWARDS = """
import gc, sys
import experiments.quick_imports
spared = {"matplotlib", "scipy", "torchvision", "transformers"}
assert not spared & set(sys.modules), "torchmetrics finds them in other ways now"
assert gc.isenabled()

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


def test_what_fails_without_them_is_left_to_an_ordinary_import(tmp_path, monkeypatch):
    (tmp_path / "spared.py").touch()
    (tmp_path / "needy.py").write_text("import spared")
    monkeypatch.syspath_prepend(tmp_path)

    _import_without("needy", {"spared"})

    assert not {"needy", "spared"} & set(sys.modules)
    assert importlib.import_module("needy").spared
    for name in ("needy", "spared"):
        monkeypatch.delitem(sys.modules, name)
