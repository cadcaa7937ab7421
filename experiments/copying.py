"""A synthetic language whose translation is the sentence itself: what a sequence model must learn within seconds."""

import numpy as np
from numpy.typing import NDArray

from experiments.configuration import CopySettings
from experiments.parallel_text import Pair, text_hash
from experiments.sentence_pairs import SentencePairs, TranslationData
from experiments.special_tokens import FIRST


def load_copy(settings: CopySettings) -> TranslationData:
    """Sentences of random words w4, w5, …; no sentence of a split is a sentence of another.

    Args:
        settings: how many sentences, of how many words, from how many.
    """
    generator = np.random.RandomState(settings.data_seed)  # whose stream NumPy promises never to change
    sizes = {"train": settings.train_size, "dev": settings.evaluation_size, "test": settings.evaluation_size}
    sentences = _distinct(settings, sum(sizes.values()), generator)
    splits, start = {}, 0
    for split, size in sizes.items():
        own = sentences[start : start + size]
        splits[split] = SentencePairs.of(own, own, [text(sentence) for sentence in own])
        start += size
    return TranslationData(
        **splits,
        vocabulary_size=FIRST + settings.words,
        text=text,
        split_hash=text_hash([Pair(one, one) for one in pairs.references] for pairs in splits.values()),
        facts={f"{split}_size": size for split, size in sizes.items()} | {"vocabulary_size": FIRST + settings.words},
    )


def text(numbers: list[int]) -> str:
    """The sentence that token numbers stand for."""
    return " ".join(f"w{number}" for number in numbers)


def _distinct(settings: CopySettings, count: int, generator: np.random.RandomState) -> list[list[int]]:
    found: dict[tuple[int, ...], None] = {}
    while len(found) < count:
        length = generator.randint(settings.shortest, settings.longest + 1)
        words: NDArray[np.int64] = generator.randint(FIRST, FIRST + settings.words, length)
        found.setdefault(tuple(words.tolist()))
    return [list(sentence) for sentence in found]
