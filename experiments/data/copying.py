"""A synthetic language whose translation is the sentence itself. A sequence model must learn it within seconds."""

from itertools import islice

import numpy as np

from experiments.data.special_tokens import FIRST
from experiments.data.translation import SentencePairs, TranslationData, TranslationDataModule
from experiments.errors import ConfigurationError
from experiments.settings import AtLeastOne, Seed, validated_class


@validated_class
class CopyDataModule(TranslationDataModule):
    """Sentences of random words w4, w5, …, to be copied; no sentence of a split is a sentence of another.

    Arguments: `conf/data/copy.yaml`.
    """

    words: AtLeastOne
    shortest: AtLeastOne
    longest: AtLeastOne
    train_size: AtLeastOne
    evaluation_size: AtLeastOne
    data_seed: Seed = 0

    def load(self) -> TranslationData:
        generator = np.random.RandomState(self.data_seed)  # NumPy promises that its stream never changes
        sizes = {"train": self.train_size, "dev": self.evaluation_size, "test": self.evaluation_size}
        vocabulary_size = FIRST + self.words
        there_are = sum(self.words**length for length in range(self.shortest, self.longest + 1))
        if 2 * (wanted := sum(sizes.values())) > there_are:  # for more sentences, drawing distinct ones takes long
            raise ConfigurationError(
                f"data.train_size and data.evaluation_size ask for {wanted} different sentences, but they can have at "
                f"most half of the {there_are} sentences that data.words, data.shortest and data.longest allow"
            )
        distinct: dict[tuple[int, ...], None] = {}
        while len(distinct) < wanted:
            length = generator.randint(self.shortest, self.longest + 1)
            distinct.setdefault(tuple(generator.randint(FIRST, vocabulary_size, length).tolist()))
        sentences, splits = iter(distinct), {}
        for split, size in sizes.items():
            own = list(islice(sentences, size))
            splits[split] = SentencePairs(own, own, [text(sentence) for sentence in own])
        facts = {f"{split}_size": size for split, size in sizes.items()} | {"vocabulary_size": vocabulary_size}
        return TranslationData(**splits, vocabulary_size=vocabulary_size, text=text, numbers=self._numbers, facts=facts)

    def _numbers(self, sentence: str) -> list[int]:
        known = {text([number]): number for number in range(FIRST, FIRST + self.words)}
        if unknown := [word for word in sentence.split() if word not in known]:
            raise ValueError(f"the word {unknown[0]!r} is not one of w{FIRST} to w{FIRST + self.words - 1}")
        return [known[word] for word in sentence.split()]


def text(tokens: list[int]) -> str:
    """The sentence that token numbers stand for."""
    return " ".join(f"w{number}" for number in tokens)
