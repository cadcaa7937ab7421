"""Training batches with about equal numbers of target tokens, made of sentences of similar length."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.data.examples import BatchIndices
from experiments.data.randomness import sample_seeds
from experiments.data.samplers import BatchDivision, EpochSampler
from experiments.data.sentence_pairs import SentencePairs
from experiments.errors import ConfigurationError


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
