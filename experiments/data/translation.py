"""A translation data set and its batches."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from experiments.data.base import SplitDataModule
from experiments.data.contents import content_hash
from experiments.data.samplers import BatchDivision, EpochSampler
from experiments.data.sentence_pairs import SentencePairs, Sequences
from experiments.data.special_tokens import BEGIN, END
from experiments.data.text import lines_of
from experiments.data.token_batches import TokenBatchSampler

Pair = tuple[str, str]  # a sentence and its translation


@dataclass(frozen=True)
class TranslationData:
    """A translation data set, split and numbered."""

    train: SentencePairs
    dev: SentencePairs  # selects the reported epoch
    test: SentencePairs
    vocabulary_size: int  # with the numbers of `special_tokens.py`
    text: Callable[[list[int]], str]  # from token numbers to their sentence
    numbers: Callable[[str], list[int]]  # from a sentence of the source language to its token numbers
    facts: dict[str, int | float | str]  # for the record of a run
    text_hash: str = ""  # of all sentences, if token numbers do not determine their sentence
    content_hash: str = ""  # see `contents.content_hash`; the data module adds it

    def types_in_use(self) -> Tensor:
        """Whether each token number occurs in a training target, bool [vocabulary size]."""
        used = torch.zeros(self.vocabulary_size, dtype=torch.bool)
        used[self.train.targets.tokens.long()] = True
        used[BEGIN] = False
        return used

    def encode(self, content: bytes) -> tuple[Tensor, list[str]]:
        """Source tokens [n, longest] of the lines of a text, and the lines."""
        lines = lines_of(content)
        sources = Sequences([*self.numbers(line), END] for line in lines)
        return sources.padded(torch.arange(len(lines))), lines


class TranslationDataModule(SplitDataModule):
    """A data set for translation; a subclass defines `load`. `batch_size` counts target tokens, padding included."""

    evaluated = ("dev", "test")
    data: TranslationData | None = None

    def training_sampler(self, division: BatchDivision) -> EpochSampler:
        return TokenBatchSampler(self.data.train, self.batch_size, self.seed, division)

    def network_arguments(self) -> dict[str, int]:
        return {"vocabulary_size": self.data.vocabulary_size}

    def module_arguments(self) -> dict[str, Any]:
        return {"data": self.data}

    def _complete(self, data: TranslationData) -> TranslationData:
        splits = {"train": data.train, "dev": data.dev, "test": data.test}
        return replace(data, content_hash=content_hash(splits, data.text_hash))

    def evaluation_order(self, split: str) -> Tensor:
        return getattr(self.data, split).sources.lengths.argsort(stable=True)  # the shortest first: less padding
