"""The lines of a text; from the text of tweets to rows of token numbers."""

import html
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from experiments.files import text_of

Tokenize = Callable[[Sequence[str]], list[list[str]]]  # the tokens of each tweet


def lines_of(content: bytes) -> list[str]:
    """The lines of a text, blank ones too, without the spaces around them, by the rules of data/README.md."""
    return [line.strip() for line in text_of(content).removesuffix("\n").split("\n")]


def filled_lines_of(content: bytes) -> list[str]:
    """The lines of a text that are not blank, as `lines_of`."""
    return [line for line in lines_of(content) if line]


def tweet_tokens(texts: Sequence[str]) -> list[list[str]]:
    """The lower-case lemmas of tweets, which may hold HTML entities.

    NLTK's `TweetTokenizer` finds the tokens (handles, hashtags, links and emoticons stay whole), and `simplemma` finds
    the lemmas; neither downloads anything. Only plain words are replaced by their lemma: the lemma of "didn't" would be
    "do", which loses the negation.
    """
    from nltk.tokenize.casual import TweetTokenizer

    tokenizer = TweetTokenizer()
    # The tokenizer's own unescaping leaves entities without a semicolon, such as "&lt3".
    tweets = [tokenizer.tokenize(html.unescape(text)) for text in texts]
    return [[_lemma(token) if token.lower().isalpha() else token.lower() for token in tweet] for tweet in tweets]


def letter_tokens(texts: Sequence[str], lemmas: bool, stop_words: bool) -> list[list[str]]:
    """The words of tweets, which are their runs of the letters a to z; with `lemmas`, the lemma of each word.

    Without `stop_words`, words that scikit-learn lists as stop words are left out, such as "the" and "not".
    """
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    tweets = [re.findall("[a-z]+", html.unescape(text).lower()) for text in texts]
    if not stop_words:
        tweets = [[word for word in tweet if word not in ENGLISH_STOP_WORDS] for tweet in tweets]
    return [[_lemma(word) for word in tweet] for tweet in tweets] if lemmas else tweets


def _lemma(word: str) -> str:
    import simplemma

    return simplemma.lemmatize(word.lower(), lang="en").lower()


class Vocabulary:
    """A numbering of the tokens that occur at least `minimum_count` times: 0 pads, 1 is any unknown token.

    Known tokens are numbered from 2, the most frequent first, then by alphabet, so the numbering does not depend on the
    order of the tweets.
    """

    padding = 0
    unknown = 1

    def __init__(self, tweets: Iterable[Sequence[str]], minimum_count: int) -> None:
        counts = Counter(token for tweet in tweets for token in tweet)
        known = [token for token, count in counts.items() if count >= minimum_count]
        known.sort(key=lambda token: (-counts[token], token))
        self._numbers = {token: number for number, token in enumerate(known, self.unknown + 1)}

    def __len__(self) -> int:
        return len(self._numbers) + 2

    def encode(self, tweets: Sequence[Sequence[str]], max_length: int) -> Tensor:
        """The numbers of the first `max_length` tokens of each tweet, padded on the right, int64 [n, max_length]."""
        rows = torch.full((len(tweets), max_length), self.padding, dtype=torch.int64)
        for row, tweet in zip(rows.numpy(), tweets, strict=True):
            row[: len(tweet)] = [self._numbers.get(token, self.unknown) for token in tweet[:max_length]]
        return rows
