"""A bag of embeddings: the mean of a text's tokens, then a linear layer."""

from collections import OrderedDict

from torch import nn

from experiments.data.text import Vocabulary
from experiments.settings import AtLeastOne, validated


class EmbeddingBag(nn.Sequential):
    """Logits W m + b, m the mean embedding of a text's real tokens; from padded token numbers [n, length]."""

    @validated
    def __init__(
        self, *, vocabulary_size: AtLeastOne, embedding_dimension: AtLeastOne, num_classes: AtLeastOne
    ) -> None:
        bag = nn.EmbeddingBag(vocabulary_size, embedding_dimension, mode="mean", padding_idx=Vocabulary.padding)
        super().__init__(OrderedDict(embedding=bag, output=nn.Linear(embedding_dimension, num_classes)))
