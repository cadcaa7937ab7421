"""A perceptron on pixels: a network for images that trains in a minute on one core."""

from torch import nn

from experiments.networks.resnet import Standardised
from experiments.settings import AtLeastOne, Three, ThreePositive, validated


class ImagePerceptron(nn.Sequential):
    """One hidden layer of rectified units, from uint8 [n, 3, side, side] to logits [n, num_classes]."""

    @validated
    def __init__(
        self,
        *,
        side: AtLeastOne,
        hidden_units: AtLeastOne,
        pixel_mean: Three,
        pixel_std: ThreePositive,
        num_classes: AtLeastOne,
    ) -> None:
        super().__init__(
            Standardised(pixel_mean, pixel_std),
            nn.Flatten(),
            nn.Linear(3 * side**2, hidden_units),
            nn.ReLU(),
            nn.Linear(hidden_units, num_classes),
        )
