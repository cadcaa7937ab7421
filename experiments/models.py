"""The networks below the output activation: from inputs to logits."""

from torch import Tensor, nn

from experiments.configuration import EmbeddingBagSettings, PerceptronSettings
from experiments.dataset import ClassificationData
from experiments.errors import ConfigurationError
from experiments.tweets import Vocabulary


class EmbeddingBagClassifier(nn.Module):
    """Logits W m + b, m the mean embedding of a text's real tokens; from padded token numbers [n, length]."""

    def __init__(self, vocabulary_size: int, embedding_dimension: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(
            vocabulary_size, embedding_dimension, mode="mean", padding_idx=Vocabulary.padding
        )
        self.output = nn.Linear(embedding_dimension, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.output(self.embedding(tokens))
        return logits


def perceptron(features: int, hidden_units: int, classes: int) -> nn.Module:
    """One hidden layer of rectified units, from features [n, features] to logits [n, classes]."""
    return nn.Sequential(nn.Linear(features, hidden_units), nn.ReLU(), nn.Linear(hidden_units, classes))


def build_model(settings: EmbeddingBagSettings | PerceptronSettings, data: ClassificationData) -> nn.Module:
    """The network a configuration asks for, sized for its data.

    Raises:
        ConfigurationError: if the network cannot read that kind of data.
    """
    classes, tokens = len(data.class_names), "vocabulary_size" in data.facts
    if isinstance(settings, EmbeddingBagSettings) and tokens:
        return EmbeddingBagClassifier(int(data.facts["vocabulary_size"]), settings.embedding_dimension, classes)
    if isinstance(settings, PerceptronSettings) and not tokens:
        return perceptron(data.train_inputs[0].numel(), settings.hidden_units, classes)
    kind = "tokens" if tokens else "real features"
    raise ConfigurationError(f"model={settings.name!r} cannot read inputs that are {kind}; choose another model")
