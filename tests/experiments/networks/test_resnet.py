"""The networks below the output activation."""

import sys

import pytest
import torch

from experiments.errors import ConfigurationError
from experiments.networks.resnet import Standardised, resnet, timm_model


@pytest.mark.parametrize(
    ("name", "stem", "parameters"),
    # torchvision's own counts for 1,000 classes, less the classes not there: (features + 1) · 900
    [("resnet18", "imagenet", 11_689_512 - 513 * 900), ("resnet50", "imagenet", 25_557_032 - 2049 * 900)],
)
def test_the_imagenet_stem_is_torchvisions_network(name: str, stem: str, parameters: int) -> None:
    assert sum(parameter.numel() for parameter in resnet(name, stem, 100).parameters()) == parameters


@pytest.mark.parametrize(("stem", "side"), [("imagenet", 8), ("cifar", 32)])
def test_the_stem_decides_the_resolution_of_the_first_block(stem: str, side: int) -> None:
    network = resnet("resnet18", stem, 100).eval()
    seen = []
    network.layer1.register_forward_hook(lambda _module, _inputs, output: seen.append(output.shape))
    assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 100)
    assert seen == [(2, 64, side, side)]


def test_pixels_are_standardised_by_channel() -> None:
    images = torch.tensor([0, 51, 255], dtype=torch.uint8).reshape(1, 3, 1, 1)
    found = Standardised([0.5, 0.2, 0.0], [0.5, 0.1, 2.0])(images)
    torch.testing.assert_close(found.flatten(), torch.tensor([-1.0, 0.0, 0.5]), atol=1e-6, rtol=0)


def test_a_network_of_timm_by_its_name() -> None:
    network = timm_model("resnet10t", 7).eval()
    assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 7)


def test_an_unknown_network_of_timm_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"model\.architecture='resnet10000'"):
        timm_model("resnet10000", 7)


def test_without_timm_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ConfigurationError, match="pip install timm"):
        timm_model("resnet10t", 7)
