"""The networks below the output activation: from inputs to logits."""

import torchvision
from torch import Tensor, nn
from torchvision.transforms.v2.functional import normalize

from experiments.attention import attention_activation
from experiments.configuration import (
    EmbeddingBagSettings,
    ModelSettings,
    PerceptronSettings,
    ResNetSettings,
    TransformerSettings,
)
from experiments.dataset import ClassificationData
from experiments.errors import ConfigurationError
from experiments.transformer import Transformer
from experiments.tweets import Vocabulary

_RESNETS = {"resnet18": torchvision.models.resnet18, "resnet50": torchvision.models.resnet50}


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


class Standardised(nn.Module):
    """(v/255 − mean)/std of the pixel values v of each channel; from uint8 [n, 3, height, width] to float32."""

    def __init__(self, mean: list[float], std: list[float]) -> None:
        super().__init__()
        self.mean, self.std = mean, std

    def forward(self, images: Tensor) -> Tensor:
        return normalize(images.float() / 255, self.mean, self.std)


def resnet(name: str, stem: str, classes: int) -> nn.Module:
    """torchvision's ResNet with fresh weights, from float32 [n, 3, height, width] to logits [n, classes].

    Args:
        name: `resnet18` or `resnet50`.
        stem: `imagenet` as torchvision has it, or `cifar`: a 3 × 3 convolution with stride 1, and no pooling.
        classes: number of classes.

    Source: He et al., Deep Residual Learning, 2016; the stem for small images is of its section 4.2.
    """
    network = _RESNETS[name](num_classes=classes)
    if stem == "cifar":
        network.conv1 = nn.Conv2d(3, network.conv1.out_channels, 3, padding=1, bias=False)
        network.maxpool = nn.Identity()
    return network


def timm_model(architecture: str, classes: int) -> nn.Module:
    """A network of the timm package with fresh weights.

    Raises:
        ConfigurationError: timm is not installed or has no such network.
    """
    try:
        import timm

        network: nn.Module = timm.create_model(architecture, num_classes=classes)
    except ImportError as error:
        raise ConfigurationError("model=timm needs the timm package: pip install timm") from error
    except RuntimeError as error:
        raise ConfigurationError(f"model.architecture={architecture!r} is not allowed: {error}") from error
    return network


def build_transformer(settings: TransformerSettings, vocabulary_size: int) -> Transformer:
    """The Transformer a configuration asks for."""
    return Transformer(
        vocabulary_size,
        settings.dimension,
        settings.feedforward,
        settings.heads,
        settings.encoder_layers,
        settings.decoder_layers,
        settings.dropout,
        settings.attention_dropout,
        lambda: attention_activation(settings.attention, settings.heads),
    )


def build_model(settings: ModelSettings, data: ClassificationData) -> nn.Module:
    """The network a configuration asks for, sized for its data."""
    classes = len(data.class_names)
    if isinstance(settings, EmbeddingBagSettings):
        return EmbeddingBagClassifier(int(data.facts["vocabulary_size"]), settings.embedding_dimension, classes)
    if isinstance(settings, PerceptronSettings):
        return perceptron(int(data.facts["features"]), settings.hidden_units, classes)
    if isinstance(settings, ResNetSettings):
        network = resnet(settings.name, settings.stem, classes)
    else:
        network = timm_model(settings.architecture, classes)
    return nn.Sequential(Standardised(settings.pixel_mean, settings.pixel_std), network)
