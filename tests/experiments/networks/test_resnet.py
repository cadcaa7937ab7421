"""The networks for images."""

import pytest
import torch

from experiments.networks.resnet import ResNet, Standardised

PIXELS = {"pixel_mean": (0.5, 0.2, 0.0), "pixel_std": (0.5, 0.1, 2.0)}


@pytest.mark.medium
def test_the_imagenet_stem_is_torchvisions_network():
    # torchvision's own counts for 1,000 classes, less the classes not there: (features + 1) · 900
    for depth, expected in ((18, 11_689_512 - 513 * 900), (50, 25_557_032 - 2049 * 900)):
        network = ResNet(depth=depth, stem="imagenet", num_classes=100, **PIXELS)
        assert sum(parameter.numel() for parameter in network.parameters()) == expected, depth


def test_the_stem_decides_the_resolution_of_the_first_block():
    for stem, side in (("imagenet", 8), ("cifar", 32)):
        network = ResNet(depth=18, stem=stem, num_classes=100, **PIXELS).eval()
        seen = []
        network[1].layer1.register_forward_hook(lambda _module, _inputs, output, seen=seen: seen.append(output.shape))
        assert network(torch.zeros(2, 3, 32, 32, dtype=torch.uint8)).shape == (2, 100)
        assert seen == [(2, 64, side, side)], stem


def test_pixels_are_standardised_by_channel():
    images = torch.tensor([0, 51, 255], dtype=torch.uint8).reshape(1, 3, 1, 1)
    found = Standardised(**{name.removeprefix("pixel_"): values for name, values in PIXELS.items()})(images)
    torch.testing.assert_close(found.flatten(), torch.tensor([-1.0, 0.0, 0.5]), atol=1e-6, rtol=0)
