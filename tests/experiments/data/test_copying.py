"""A synthetic language whose translation is the sentence itself."""

import torch

from experiments.data.special_tokens import FIRST
from tests.experiments.data.support import loaded, words


def test_copies_are_the_sentences_and_no_split_shares_one() -> None:
    copies = loaded("copy")
    seen: set[str] = set()
    for pairs, size in ((copies.train, 300), (copies.dev, 20), (copies.test, 20)):
        sources, targets = pairs.read(torch.arange(size), torch.zeros(size))
        for source, target, reference in zip(sources, targets, pairs.references, strict=True):
            assert words(source) == words(target)
            assert copies.text(words(target)) == reference
            assert 2 <= len(words(source)) <= 9
        assert not seen & set(pairs.references)
        assert len(set(pairs.references)) == size
        seen |= set(pairs.references)
    assert copies.vocabulary_size == FIRST + 6
