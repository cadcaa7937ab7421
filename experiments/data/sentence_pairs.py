"""Sentences of two languages as token numbers."""

import hashlib
from array import array
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from experiments.data.contents import tensor_digest
from experiments.data.special_tokens import BEGIN, END, PADDING


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
