"""A synthetic language whose translation is the sentence itself. A sequence model must learn it within seconds."""

from itertools import islice
from typing import Any

import numpy as np

from experiments.data.sentence_pairs import SentencePairs
from experiments.data.special_tokens import FIRST
from experiments.data.translation import TranslationData, TranslationDataModule
from experiments.errors import ConfigurationError
from experiments.settings import AtLeastOne, Seed, validated


class CopyDataModule(TranslationDataModule):
    """Sentences of random words w4, w5, …, to be copied; no sentence of a split is a sentence of another.

    Arguments: `conf/data/copy.yaml`.
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
        if 2 * asked > there_are:  # for more sentences, drawing distinct ones takes long
            raise ConfigurationError(
                f"data.train_size={train_size} and data.evaluation_size={evaluation_size} ask for {asked} different "
                f"sentences; of data.words={words} words, data.shortest={shortest} to data.longest={longest} a "
                f"sentence, there are {there_are}, of which at most half may be asked for"
            )
        self.words, self.lengths, self.data_seed = range(FIRST, FIRST + words), (shortest, longest + 1), data_seed
        self.sizes = {"train": train_size, "dev": evaluation_size, "test": evaluation_size}

    def load(self) -> TranslationData:
        generator = np.random.RandomState(self.data_seed)  # NumPy promises that its stream never changes
        distinct: dict[tuple[int, ...], None] = {}
        while len(distinct) < sum(self.sizes.values()):
            length = generator.randint(*self.lengths)
            distinct.setdefault(tuple(generator.randint(self.words.start, self.words.stop, length).tolist()))
        sentences, splits = iter(distinct), {}
        for split, size in self.sizes.items():
            own = list(islice(sentences, size))
            splits[split] = SentencePairs(own, own, [text(sentence) for sentence in own])
        facts = {f"{split}_size": size for split, size in self.sizes.items()} | {"vocabulary_size": self.words.stop}
        return TranslationData(**splits, vocabulary_size=self.words.stop, text=text, numbers=self._numbers, facts=facts)

    def _numbers(self, sentence: str) -> list[int]:
        known = {text([number]): number for number in self.words}
        if unknown := [word for word in sentence.split() if word not in known]:
            raise ValueError(f"the word {unknown[0]!r} is not one of w{self.words[0]} to w{self.words[-1]}")
        return [known[word] for word in sentence.split()]


def text(tokens: list[int]) -> str:
    """The sentence that token numbers stand for."""
    return " ".join(f"w{number}" for number in tokens)
