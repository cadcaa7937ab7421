"""Training batches of about as many target tokens each, of sentences of like length."""

from collections.abc import Iterator
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Sampler

from experiments.batches import Division
from experiments.dataset import Draw
from experiments.randomness import sample_seeds
from experiments.sentence_pairs import SentencePairs


class TokenDraws(Sampler[Draw]):
    """A training epoch of sentence pairs: each once, in batches by length, this process's part of each batch.

    Pairs are sorted by the length of the target, then of the source, those alike in an order that is a function of
    (seed, epoch), and so is the order of the batches. Assign `epoch` before each epoch.

    Args:
        pairs: what is drawn from.
        batch_tokens: the most target tokens a batch may have, padding included, over all processes and passes.
        seed: the training seed.
        steps: the most batches an epoch has; None for all.
        division: of each batch. The last and longest pairs are not drawn if they are too few for every pass.
    """

    def __init__(
        self, pairs: SentencePairs, batch_tokens: int, seed: int, steps: int | None, division: Division
    ) -> None:
        self.source, self.target = pairs.sources.lengths.numpy(), pairs.predicted_tokens().numpy()
        self.seed, self.division, self.epoch = seed, division, 0
        self.parts = division.processes * division.passes
        self.places = list(_batches(self.target, batch_tokens))
        found = sum(len(place) >= self.parts for place in self.places)
        self.steps = found if steps is None else min(steps, found)

    def __iter__(self) -> Iterator[Draw]:
        generator = np.random.default_rng([self.seed, self.epoch])
        shuffled = generator.permutation(len(self.target))
        order = shuffled[np.lexsort((self.source[shuffled], self.target[shuffled]))]
        seeds = sample_seeds(self.seed, self.epoch, torch.from_numpy(order))
        shuffled_places = (self.places[number] for number in generator.permutation(len(self.places)))
        for place in islice((place for place in shuffled_places if len(place) >= self.parts), self.steps):
            tokens = self.target[order[place]].sum()
            for turn in range(self.division.passes):
                part = np.array(place[self.division.process + turn * self.division.processes :: self.parts])
                # Gradients are summed over passes and averaged over processes.
                weight = self.division.processes * float(self.target[order[part]].sum() / tokens)
                yield Draw(torch.from_numpy(order[part]), seeds[part], weight)

    def __len__(self) -> int:
        return self.steps * self.division.passes


def measuring_draws(pairs: SentencePairs, batch_size: int, division: Division) -> list[Draw]:
    """All pairs once, the shortest sources first: this process's part, `batch_size` pairs at a time."""
    order = pairs.sources.lengths.argsort(stable=True)[division.process :: division.processes]
    return [Draw(chunk.clone(), torch.zeros_like(chunk), 1.0) for chunk in order.split(batch_size)]


def _batches(lengths: NDArray[np.int64], batch_tokens: int) -> Iterator[range]:
    """The places of each batch among sorted pairs: as many as fit when padded to the longest of them."""
    start = 0
    for place, length in enumerate(np.sort(lengths).tolist()):
        if (place + 1 - start) * length > batch_tokens and place > start:
            yield range(start, place)
            start = place
    yield range(start, len(lengths))
