"""Translation data: pairs of sentences as token numbers, in training batches with about equal numbers of tokens."""

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from experiments.data.base import SplitDataModule
from experiments.data.examples import BatchIndices
from experiments.data.hashes import content_hash, tensor_digest
from experiments.data.randomness import sample_seeds
from experiments.data.samplers import BatchDivision, EpochSampler
from experiments.data.special_tokens import BEGIN, END, PADDING
from experiments.data.text import filled_lines_of
from experiments.errors import ConfigurationError

Pair = tuple[str, str]  # a sentence and its translation


class Sequences:
    """Sequences of token numbers, joined in one tensor, `tokens`: four bytes a token, so that millions of them fit.

    `lengths` and `ends` are those of each sequence, int64 [n].
    """

    def __init__(self, sequences: Iterable[Sequence[int]]) -> None:
        tokens, lengths = array("i"), array("q")
        for sequence in sequences:
            tokens.extend(sequence)
            lengths.append(len(sequence))
        self.tokens, self.lengths = torch.from_numpy(np.array(tokens)), torch.from_numpy(np.array(lengths))
        self.ends = self.lengths.cumsum(0)

    def padded(self, indices: Tensor) -> Tensor:
        """The sequences at the indices [m], padded to the longest sequence: int64 [m, longest]."""
        if not len(indices):
            return torch.empty(0, 0, dtype=torch.int64)
        ends, lengths = self.ends[indices].tolist(), self.lengths[indices].tolist()
        chosen = [self.tokens[end - length : end] for end, length in zip(ends, lengths, strict=True)]
        return pad_sequence(chosen, batch_first=True, padding_value=PADDING).long()


class SentencePairs:
    """The pairs of a split, given as token numbers without BEGIN and END, and the translations as text, [n].

    Each of the `sources` ends with END; each of the `targets` begins with BEGIN and ends with END.
    """

    def __init__(
        self, sources: Iterable[Sequence[int]], targets: Iterable[Sequence[int]], references: Sequence[str]
    ) -> None:
        self.sources = Sequences([*source, END] for source in sources)
        self.targets = Sequences([BEGIN, *target, END] for target in targets)
        self.references = references

    def read(self, indices: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor]:
        return self.sources.padded(indices), self.targets.padded(indices)

    def digest(self) -> bytes:
        sides = (self.sources.tokens, self.sources.lengths, self.targets.tokens, self.targets.lengths)
        return hashlib.sha256(tensor_digest(*sides) + "\n".join(self.references).encode()).digest()

    def predicted_tokens(self) -> Tensor:
        """How many tokens of each target are predicted: all but BEGIN, int64 [n]."""
        return self.targets.lengths - 1


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
    content_hash: str = ""  # see `hashes.content_hash`; the data module adds it

    def types_in_use(self) -> Tensor:
        """Whether each token number occurs in a training target, bool [vocabulary size]."""
        used = torch.zeros(self.vocabulary_size, dtype=torch.bool)
        used[self.train.targets.tokens.long()] = True
        used[BEGIN] = False
        return used

    def encode(self, content: bytes) -> tuple[Tensor, list[str]]:
        """Source tokens [n, longest] of the lines of a text, and the lines."""
        lines = filled_lines_of(content)
        sources = Sequences([*self.numbers(line), END] for line in lines)
        return sources.padded(torch.arange(len(lines))), lines


class TokenBatchSampler(EpochSampler):
    """A training epoch of sentence pairs: each pair once, in batches by length; this process's part of each batch.

    Pairs are sorted by the length of the target, then of the source. The order of pairs with equal lengths and the
    order of the batches are functions of (seed, epoch). If too few pairs remain for every part of the last batch, these
    longest pairs are not drawn. A batch has at most `batch_tokens` target tokens, padding included, over all processes
    and passes.

    Raises:
        ConfigurationError: a batch has no room for the longest target in every part, or there are too few pairs.
    """

    def __init__(self, pairs: SentencePairs, batch_tokens: int, seed: int, division: BatchDivision) -> None:
        self.source, self.target = pairs.sources.lengths.numpy(), pairs.predicted_tokens().numpy()
        self.seed, self.division = seed, division
        if batch_tokens < (least := int(self.target.max()) * division.parts):
            raise ConfigurationError(
                f"data.batch_size={batch_tokens} is not allowed; it counts the target tokens of a step, and must be at "
                f"least {least}: the longest target of {self.target.max()} tokens for each device, node and pass"
            )
        self.places = list(_batches(self.target, batch_tokens))
        self.steps = sum(len(place) >= division.parts for place in self.places)
        if not self.steps:
            raise ConfigurationError(f"{len(self.target)} training pairs are too few for {division.parts} parts a step")

    def __iter__(self) -> Iterator[BatchIndices]:
        generator = np.random.default_rng([self.seed, self.epoch])
        shuffled = generator.permutation(len(self.target))
        order = shuffled[np.lexsort((self.source[shuffled], self.target[shuffled]))]
        seeds = sample_seeds(self.seed, self.epoch, torch.from_numpy(order))
        for number in generator.permutation(len(self.places)):
            place = self.places[number]
            if len(place) < self.division.parts:
                continue
            tokens = self.target[order[place]].sum()
            for turn in range(self.division.passes):
                part = np.array(place[self.division.part(turn) :: self.division.parts])
                # Lightning takes the mean of the gradients over passes and processes.
                weight = self.division.parts * float(self.target[order[part]].sum() / tokens)
                yield BatchIndices(torch.from_numpy(order[part]), seeds[part], weight)


def _batches(lengths: NDArray[np.int64], batch_tokens: int) -> Iterator[range]:
    """The places of each batch among sorted pairs: as many pairs as fit when padded to the longest pair."""
    start = 0
    for place, length in enumerate(np.sort(lengths).tolist()):
        if (place + 1 - start) * length > batch_tokens and place > start:
            yield range(start, place)
            start = place
    yield range(start, len(lengths))


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
