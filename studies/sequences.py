"""Sequences of tokens whose answers lie earlier in the sequence: copying, and multi-query associative recall."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from experiments.data.randomness import sample_seeds

UNASKED = -100  # the target where nothing is asked for; cross-entropy ignores it
FILLER = 0

Sequences = tuple[Tensor, Tensor]  # tokens [n, length], and the token asked for at each position, [n, length]


def copying(examples: int, length: int, generator: torch.Generator, *, letters: int) -> Sequences:
    """A string of random letters, a separator, and the string again. The answer is the second string.

    Source: Vasylenko et al., Long-Context Generalization with Sparse Attention, 2025, whose code draws strings of 32
    letters; Jelassi et al., Repeat After Me: Transformers are Better than State Space Models at Copying, 2024.
    """
    half = length // 2
    string = torch.randint(letters, (examples, half), generator=generator) + 1
    separator, unasked = torch.full((examples, 1), FILLER), torch.full((examples, half), UNASKED)
    return torch.cat([string, separator, string[:, :-1]], 1), torch.cat([unasked, string], 1)


def recall(examples: int, length: int, generator: torch.Generator, *, keys: int, values: int) -> Sequences:
    """Pairs of a key and a value, then each key again with a filler after it. The answer is the value of the key.

    There is a pair for every four tokens, so that no token is left over.

    Source: Arora et al., Zoology: Measuring and Improving Recall in Efficient Language Models, 2024, section 3; their
    code tests up to this number of pairs at each length.
    """
    pairs = length // 4
    key = _different(examples, pairs, keys, generator) + 1
    value = torch.randint(values, (examples, pairs), generator=generator) + 1 + keys
    order = _different(examples, pairs, pairs, generator)
    asked = _alternating(key.gather(1, order), torch.full_like(key, FILLER))
    unasked = torch.full_like(key, UNASKED)
    answers = _alternating(value.gather(1, order), unasked)
    return torch.cat([_alternating(key, value), asked], 1), torch.cat([unasked, unasked, answers], 1)


def _different(rows: int, count: int, numbers: int, generator: torch.Generator) -> Tensor:
    """In each row `count` different numbers from 0 to `numbers` − 1 in random order, [rows, count]."""
    return torch.rand(rows, numbers, generator=generator).argsort(1)[:, :count]


def _alternating(first: Tensor, second: Tensor) -> Tensor:
    """The columns of the two tensors in turn."""
    return torch.stack([first, second], 2).flatten(1)


def drawn_batches(
    draw: Callable[[int, int, torch.Generator], Sequences], lengths: list[int], examples: int, batches: int, seed: int
) -> Iterator[Sequences]:
    """Batches of sequences. A batch depends on the seed and its number alone, and its sequences have one length.

    Args:
        draw: draws the sequences of a batch.
        lengths: each batch draws one of them.
        examples: number of sequences in a batch.
        batches: number of batches.
        seed: of the draws.
    """
    for seed_of_batch in sample_seeds(seed, 0, torch.arange(batches)).tolist():
        generator = torch.Generator().manual_seed(seed_of_batch)
        length = lengths[int(torch.randint(len(lengths), (), generator=generator))]
        yield draw(examples, length, generator)
