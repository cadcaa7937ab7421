"""Sentences of two languages as token numbers."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from experiments.data.special_tokens import BEGIN, END, PADDING


@dataclass(frozen=True)
class Sequences:
    """Sequences of token numbers of different lengths, in one tensor.

    Attributes:
        tokens: all of them, one after the other, int32 [total].
        ends: where each ends, int64 [n].
    """

    tokens: Tensor
    ends: Tensor

    @classmethod
    def of(cls, sequences: Iterable[Sequence[int]]) -> "Sequences":
        """The sequences given one by one."""
        tokens, ends = array("i"), array("q")  # four bytes a token, for corpora of millions of sentences
        for sequence in sequences:
            tokens.extend(sequence)
            ends.append(len(tokens))
        return cls(torch.from_numpy(np.array(tokens, dtype=np.int32)), torch.from_numpy(np.array(ends, dtype=np.int64)))

    @cached_property
    def lengths(self) -> Tensor:
        """int64 [n]."""
        return self.ends.diff(prepend=self.ends.new_zeros(1))

    def subset(self, indices: Tensor) -> "Sequences":
        """The sequences at the indices."""
        lengths = self.lengths[indices]
        ends = lengths.cumsum(0)
        places = torch.arange(int(lengths.sum())) + (self.ends[indices] - ends).repeat_interleave(lengths)
        return Sequences(self.tokens[places], ends)

    def padded(self, indices: Tensor) -> Tensor:
        """The sequences at the indices [m], padded to the longest of them: int64 [m, longest]."""
        if not len(indices):
            return torch.empty(0, 0, dtype=torch.int64)
        ends, lengths = self.ends[indices].tolist(), self.lengths[indices].tolist()
        chosen = [self.tokens[end - length : end] for end, length in zip(ends, lengths, strict=True)]
        return pad_sequence(chosen, batch_first=True, padding_value=PADDING).long()


@dataclass(frozen=True)
class SentencePairs:
    """One split: sentences and their translations.

    Attributes:
        sources: each ends with END.
        targets: each begins with BEGIN and ends with END.
        references: the translations as text, [n].
    """

    sources: Sequences
    targets: Sequences
    references: Sequence[str]

    @classmethod
    def of(
        cls, sources: Iterable[Sequence[int]], targets: Iterable[Sequence[int]], references: Sequence[str]
    ) -> "SentencePairs":
        """The pairs given as plain numbers, without BEGIN and END."""
        return cls(
            Sequences.of([*source, END] for source in sources),
            Sequences.of([BEGIN, *target, END] for target in targets),
            references,
        )

    def subset(self, indices: Tensor) -> "SentencePairs":
        """The pairs at the indices."""
        references = [self.references[index] for index in indices.tolist()]
        return SentencePairs(self.sources.subset(indices), self.targets.subset(indices), references)

    def read(self, indices: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor, list[str]]:
        return self.sources.padded(indices), self.targets.padded(indices), []

    def predicted_tokens(self) -> Tensor:
        """How many tokens of each target are predicted: all but BEGIN, int64 [n]."""
        return self.targets.lengths - 1
