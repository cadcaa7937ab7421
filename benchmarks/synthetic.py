"""Random inputs of an experiment's shapes, as data modules."""

from typing import Any

import torch

from experiments.data.base import ClassificationDataModule
from experiments.data.examples import ClassificationData, InMemory
from experiments.data.sentence_pairs import SentencePairs
from experiments.data.special_tokens import FIRST
from experiments.data.translation import TranslationData, TranslationDataModule


class RandomExamples(ClassificationDataModule):
    """Random tokens of a vocabulary, or where there is none random images, in every split.

    Args:
        examples: number of examples.
        shape: shape of an example.
        classes: number of classes.
        vocabulary: number of tokens; None for images.
        **batches: as for `ClassificationDataModule`.
    """

    def __init__(
        self, *, examples: int, shape: list[int], classes: int, vocabulary: int | None = None, **batches: Any
    ) -> None:
        super().__init__(**batches)
        self.examples, self.shape, self.classes, self.vocabulary = examples, shape, classes, vocabulary

    def load(self) -> ClassificationData:
        generator = torch.Generator().manual_seed(0)
        dtype = torch.uint8 if self.vocabulary is None else torch.int64
        size = (self.examples, *self.shape)
        inputs = torch.randint(1, self.vocabulary or 256, size, dtype=dtype, generator=generator)
        side = InMemory(inputs, torch.randint(self.classes, (self.examples,), generator=generator))
        sizes = {} if self.vocabulary is None else {"vocabulary_size": self.vocabulary}
        names = tuple(map(str, range(self.classes)))
        return ClassificationData(side, side, names, sizes=sizes)


class RandomSentences(TranslationDataModule):
    """Pairs of sentences of random tokens, in every split.

    Args:
        vocabulary: number of tokens.
        source, target: number of tokens in a sentence of each side.
        count: number of pairs.
        **batches: as for `TranslationDataModule`.
    """

    def __init__(self, *, vocabulary: int, source: int, target: int, count: int, **batches: Any) -> None:
        super().__init__(**batches)
        self.vocabulary, self.lengths, self.count = vocabulary, (source, target), count

    def load(self) -> TranslationData:
        generator = torch.Generator().manual_seed(0)
        sides = (
            torch.randint(FIRST, self.vocabulary, (self.count, length), generator=generator) for length in self.lengths
        )
        pairs = SentencePairs(*(side.tolist() for side in sides), references=[""] * self.count)
        return TranslationData(pairs, pairs, pairs, self.vocabulary, str, lambda sentence: [], {})
