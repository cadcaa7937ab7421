"""Beam search finds what brute force finds, for dense and for sparse distributions."""

import functools
import itertools
import math

import pytest
import torch
from torch import Tensor

from experiments.data.special_tokens import BEGIN, END, FIRST
from experiments.modules.beam_search import Hypothesis, beam_search

VOCABULARY = FIRST + 3  # five tokens can follow: UNKNOWN, END, and three of its own
WORDS = [1, *range(FIRST, VOCABULARY)]


class Language:
    """Random p(next | sentence, prefix) for every prefix, the same whenever it is asked."""

    def __init__(self, seed: int, zeros: float, total: float = 1.0) -> None:
        self.seed, self.zeros, self.total = seed, zeros, total
        self.known = functools.cache(self.p)  # most prefixes are asked for many times

    def p(self, sentence: int, prefix: tuple[int, ...]) -> Tensor:
        generator = torch.Generator().manual_seed(hash((self.seed, sentence, prefix)) % 2**31)
        weights = torch.rand(VOCABULARY, generator=generator, dtype=torch.float64) ** 3
        weights[torch.rand(VOCABULARY, generator=generator) < self.zeros] = 0
        weights[BEGIN] *= 2  # which must never be taken
        return self.total * weights / weights.sum().clamp_min(1e-300)

    def step(self, last: Tensor, sentences: Tensor, past: Tensor | None) -> tuple[Tensor, Tensor]:
        """The memory is the number of the sentence, the past all tokens so far."""
        prefixes = last[:, None] if past is None else torch.cat([past, last[:, None]], 1)
        rows = zip(sentences.tolist(), prefixes.tolist(), strict=True)
        return torch.stack([self.known(sentence, tuple(prefix)) for sentence, prefix in rows]), prefixes

    def score(self, sentence: int, words: tuple[int, ...]) -> float:
        score, prefix = 0.0, (BEGIN,)
        for token in (*words, END):
            p = self.known(sentence, prefix)[token].item()
            if p == 0:
                return -math.inf
            score, prefix = score + math.log(p), (*prefix, token)
        return score

    def search(
        self, limits: list[int], size: int, length_penalty: float = 0.0, stops_early: bool = True
    ) -> list[Hypothesis]:
        sentences, probabilities = torch.arange(len(limits)), stops_early and self.total <= 1
        return beam_search(self.step, sentences, torch.tensor(limits), size, length_penalty, probabilities)


def brute_force(language, sentence, limit, length_penalty):
    """The best of all sequences."""
    everything = [words for length in range(limit + 1) for words in itertools.product(WORDS, repeat=length)]
    scores = [language.score(sentence, words) / (len(words) + 1) ** length_penalty for words in everything]
    best = max(range(len(scores)), key=scores.__getitem__)
    return list(everything[best]), scores[best]


@pytest.mark.parametrize("zeros", [0.0, 0.4, 0.7])
@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
@pytest.mark.parametrize("total", [1.6, pytest.param(1.0, marks=pytest.mark.medium)])
def test_a_beam_that_holds_everything_finds_the_best_sequence(zeros, length_penalty, total):
    limits = [3, 0, 4, 2]
    for seed in range(2):
        language = Language(seed, zeros, total)
        found = language.search(limits, size=len(WORDS) ** max(limits), length_penalty=length_penalty)
        for sentence, limit in enumerate(limits):
            words, score = brute_force(language, sentence, limit, length_penalty)
            hypothesis = found[sentence]
            if score == -math.inf:
                assert hypothesis.score == -math.inf
            else:
                assert hypothesis.tokens == words
                assert hypothesis.score == pytest.approx(score * (len(words) + 1) ** length_penalty)


def test_a_beam_of_one_takes_the_best_token_each_time():
    language = Language(seed=3, zeros=0.0)
    for sentence, hypothesis in enumerate(language.search([5] * 4, size=1)):
        greedy: tuple[int, ...] = (BEGIN,)
        score = 0.0
        while len(greedy) <= 5 and END not in greedy:
            p = language.p(sentence, greedy)
            p[[0, BEGIN]] = 0
            greedy, score = (*greedy, int(p.argmax())), score + p.max().log().item()
        if greedy[-1] == END:
            assert hypothesis == (list(greedy[1:-1]), pytest.approx(score))


@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_stopping_early_loses_nothing(length_penalty):
    for seed in range(5):
        language, limits = Language(seed, zeros=0.2), [6, 3, 5]
        whole = language.search(limits, 2, length_penalty, stops_early=False)
        assert language.search(limits, 2, length_penalty) == whole


def test_what_one_sentence_finds_does_not_depend_on_the_others():
    language = Language(seed=2, zeros=0.3)
    together = language.search([2, 5, 3], size=2)
    assert language.search([2], size=2) == together[:1]
