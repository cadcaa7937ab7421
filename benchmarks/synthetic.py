"""Random inputs of an experiment's shapes, as a data module."""

import torch

from experiments.data.base import ClassificationDataModule
from experiments.data.examples import ClassificationData, InMemory
from experiments.settings import AtLeastOne, validated_class


@validated_class
class RandomExamples(ClassificationDataModule):
    """Random tokens of a vocabulary, or where there is none random images, in every split.

    Args:
        examples: number of examples.
        shape: shape of an example.
        classes: number of classes.
        vocabulary: number of tokens; None for images.
    """

    examples: AtLeastOne
    shape: list[AtLeastOne]
    classes: AtLeastOne
    vocabulary: AtLeastOne | None = None

    def load(self) -> ClassificationData:
        generator = torch.Generator().manual_seed(0)
        dtype = torch.uint8 if self.vocabulary is None else torch.int64
        size = (self.examples, *self.shape)
        inputs = torch.randint(1, self.vocabulary or 256, size, dtype=dtype, generator=generator)
        side = InMemory(inputs, torch.randint(self.classes, (self.examples,), generator=generator))
        sizes = {} if self.vocabulary is None else {"vocabulary_size": self.vocabulary}
        return ClassificationData(side, side, tuple(map(str, range(self.classes))), sizes=sizes)
