"""A perceptron with one hidden layer."""

from torch import nn

from experiments.settings import AtLeastOne, validated


class Perceptron(nn.Sequential):
    """One hidden layer of rectified units, from features [n, features] to logits [n, num_classes]."""

    @validated
    def __init__(self, *, features: AtLeastOne, hidden_units: AtLeastOne, num_classes: AtLeastOne) -> None:
        super().__init__(nn.Linear(features, hidden_units), nn.ReLU(), nn.Linear(hidden_units, num_classes))
