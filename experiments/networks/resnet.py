"""Networks for images: torchvision's ResNets, trained from scratch."""

from typing import Literal

import torchvision
from torch import Tensor, nn
from torchvision.transforms.v2.functional import normalize

from experiments.settings import AtLeastOne, Three, ThreePositive, validated


class Standardised(nn.Module):
    """(v/255 − mean)/std of the pixel values v of each channel; from uint8 [n, 3, height, width] to float32."""

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.mean, self.std = list(mean), list(std)

    def forward(self, images: Tensor) -> Tensor:
        return normalize(images.float() / 255, self.mean, self.std)


class ResNet(nn.Sequential):
    """torchvision's ResNet with fresh weights, from uint8 [n, 3, height, width] to logits [n, num_classes].

    Arguments: `conf/model/resnet18.yaml`.
    Source: He et al., Deep Residual Learning, 2016; the stem for small images is of its section 4.2.
    """

    @validated
    def __init__(
        self,
        *,
        depth: Literal[18, 50],
        stem: Literal["imagenet", "cifar"] = "imagenet",
        pixel_mean: Three,
        pixel_std: ThreePositive,
        num_classes: AtLeastOne,
    ) -> None:
        network = getattr(torchvision.models, f"resnet{depth}")(num_classes=num_classes)
        if stem == "cifar":
            network.conv1 = nn.Conv2d(3, network.conv1.out_channels, 3, padding=1, bias=False)
            network.maxpool = nn.Identity()
        super().__init__(Standardised(pixel_mean, pixel_std), network)
