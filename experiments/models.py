"""The networks below the output activation: from inputs to logits."""

from torch import Tensor, nn

from experiments.configuration import EmbeddingBagSettings, PerceptronSettings
from experiments.dataset import ClassificationData
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
    """The network a configuration asks for, sized for its data."""
    classes = len(data.class_names)
    if isinstance(settings, EmbeddingBagSettings):
        return EmbeddingBagClassifier(int(data.facts["vocabulary_size"]), settings.embedding_dimension, classes)
    return perceptron(data.train_inputs[0].numel(), settings.hidden_units, classes)
