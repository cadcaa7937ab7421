"""A synthetic language whose translation is the sentence itself: what a sequence model must learn within seconds."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.data.parallel_text import Pair, text_hash
from experiments.data.sentence_pairs import SentencePairs
from experiments.data.special_tokens import FIRST
from experiments.data.translation import TranslationData, TranslationDataModule
from experiments.errors import ConfigurationError
from experiments.settings import AtLeastOne, Seed, validated


class CopyDataModule(TranslationDataModule):
    """Sentences of random words w4, w5, …, to be copied; no sentence of a split is a sentence of another.

    Args:
        words: number of different words, at least 2.
        shortest, longest: words of a sentence.
        train_size: training sentences.
        evaluation_size: sentences of each of dev and test.
        data_seed: seed of the sentences.
        **batches: as for `TranslationDataModule`.
    """

    @validated
    def __init__(
        self,
        *,
        words: AtLeastOne,
        shortest: AtLeastOne,
        longest: AtLeastOne,
        train_size: AtLeastOne,
        evaluation_size: AtLeastOne,
        data_seed: Seed = 0,
        **batches: Any,
    ) -> None:
        super().__init__(**batches)
        if shortest > longest:
            raise ConfigurationError(
                f"data.shortest={shortest} is not allowed; it must be at most data.longest={longest}"
            )
        there_are = sum(words**length for length in range(shortest, longest + 1))
        asked = train_size + 2 * evaluation_size
        if 2 * asked > there_are:  # beyond, drawing different ones takes long
            raise ConfigurationError(
                f"data.train_size={train_size} and data.evaluation_size={evaluation_size} ask for {asked} different "
                f"sentences; of data.words={words} words, data.shortest={shortest} to data.longest={longest} a "
                f"sentence, there are {there_are}, of which at most half may be asked for"
            )
        self.words, self.lengths, self.data_seed = words, (shortest, longest), data_seed
        self.counts = {"train": train_size, "dev": evaluation_size, "test": evaluation_size}

    def load(self) -> TranslationData:
        sentences = self._distinct_sentences()
        splits, start = {}, 0
        for split, size in self.counts.items():
            own = sentences[start : start + size]
            splits[split] = SentencePairs.of(own, own, [text(sentence) for sentence in own])
            start += size
        vocabulary_size = FIRST + self.words
        return TranslationData(
            **splits,
            vocabulary_size=vocabulary_size,
            text=text,
            numbers=self._numbers,
            split_hash=text_hash([Pair(one, one) for one in pairs.references] for pairs in splits.values()),
            facts={f"{split}_size": size for split, size in self.counts.items()} | {"vocabulary_size": vocabulary_size},
        )

    def _numbers(self, sentence: str) -> list[int]:
        """The token numbers of a sentence."""
        known = {text([number]): number for number in range(FIRST, FIRST + self.words)}
        if unknown := [word for word in sentence.split() if word not in known]:
            raise ValueError(
                f"the word {unknown[0]!r} is not one of {text([FIRST])} to {text([FIRST + self.words - 1])}"
            )
        return [known[word] for word in sentence.split()]

    def _distinct_sentences(self) -> list[list[int]]:
        generator = np.random.RandomState(self.data_seed)  # NumPy promises that its stream never changes
        shortest, longest = self.lengths
        found: dict[tuple[int, ...], None] = {}
        while len(found) < sum(self.counts.values()):
            length = generator.randint(shortest, longest + 1)
            words: NDArray[np.int64] = generator.randint(FIRST, FIRST + self.words, length)
            found.setdefault(tuple(words.tolist()))
        return [list(sentence) for sentence in found]


def text(tokens: list[int]) -> str:
    """The sentence that token numbers stand for."""
    return " ".join(f"w{number}" for number in tokens)
