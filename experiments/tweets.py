"""From the text of tweets to rows of token numbers."""

import html
import re
from collections import Counter
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

# Letters, with apostrophes and hyphens inside: "didn't", "check-in". Other tokens are handles, links, hashtags,
# numbers, emoticons and punctuation. The paper does not say what it keeps; words give the vocabulary
# nearest to its "about 7,300".
_WORD = re.compile(r"[a-z]+(?:['’-][a-z]+)*")


def tokenize(texts: Sequence[str]) -> list[list[str]]:
    """Cut tweets into lower-case lemmas of their words.

    Tokens are those of NLTK's `TweetTokenizer`, of which words are kept; lemmas are those of `simplemma`. Neither
    downloads anything. Only plain words have their lemma taken: that of "didn't" would be "do", which loses the
    negation.

    Args:
        texts: the tweets, HTML entities allowed.

    Returns:
        The tokens of each tweet.
    """
    import simplemma
    from nltk.tokenize.casual import TweetTokenizer

    def lemma(word: str) -> str:
        return simplemma.lemmatize(word, lang="en").lower() if word.isalpha() else word

    tokenizer = TweetTokenizer(preserve_case=False)
    # The tokenizer's own unescaping leaves entities without a semicolon, such as "&lt3".
    tweets = [[token for token in tokenizer.tokenize(html.unescape(text)) if _WORD.fullmatch(token)] for text in texts]
    # Each distinct word is looked up once: a tweet's words are mostly those of other tweets.
    lemmas = {word: lemma(word) for word in {word for tweet in tweets for word in tweet}}
    return [[lemmas[word] for word in tweet] for tweet in tweets]


class Vocabulary:
    """A numbering of tokens: 0 pads, 1 is any unknown token, the others follow from 2.

    Known tokens are ordered by frequency, the most frequent first, then by alphabet, so the
    numbering does not depend on the order of the tweets.
    """

    padding = 0
    unknown = 1

    def __init__(self, tweets: Iterable[Sequence[str]], minimum_count: int) -> None:
        """Number the tokens of the training tweets.

        Args:
            tweets: tokens of the training tweets.
            minimum_count: occurrences a token needs to be known.
        """
        counts = Counter(token for tweet in tweets for token in tweet)
        known = [token for token, count in counts.items() if count >= minimum_count]
        known.sort(key=lambda token: (-counts[token], token))
        self._numbers = {token: number for number, token in enumerate(known, self.unknown + 1)}

    def __len__(self) -> int:
        """Return how many numbers there are, those for padding and unknown tokens included."""
        return len(self._numbers) + 2

    def encode(self, tweets: Sequence[Sequence[str]], max_length: int) -> Tensor:
        """Number the first `max_length` tokens of each tweet, padded on the right.

        Args:
            tweets: tokens of n tweets.
            max_length: tokens kept of each.

        Returns:
            int64 [n, max_length].
        """
        rows = torch.full((len(tweets), max_length), self.padding, dtype=torch.int64)
        for row, tweet in zip(rows.numpy(), tweets, strict=True):
            numbers = [self._numbers.get(token, self.unknown) for token in tweet[:max_length]]
            row[: len(numbers)] = numbers
        return rows
