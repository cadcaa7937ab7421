"""Beam search for the likeliest sequence, for many sentences at once."""

import math
from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

import torch
from torch import Tensor

from experiments.data.special_tokens import BEGIN, END, PADDING


class State(Protocol):
    """What a model knows of the sequences so far, one a row."""

    def at(self, rows: Tensor) -> Self:
        """The state of the rows, int64 [m]."""

    def following(self, rows: Tensor) -> Self:
        """The state of the rows, int64 [m], where row i and row rows[i] are of the same sentence."""


S = TypeVar("S", bound=State)
Step = Callable[[Tensor, S], tuple[Tensor, S]]


class Hypothesis(NamedTuple):
    """A sequence and its score.

    Attributes:
        tokens: without BEGIN and END.
        score: Σ log p of its tokens and END; −∞ where it could not end within its limit.
    """

    tokens: list[int]
    score: float


class _Continuations(NamedTuple):
    """Sequences of each sentence made one token longer, the best first.

    Attributes:
        scores: Σ log p, [n, count].
        parents: which row of the sentence each continues, [n, count].
        tokens: by which token, [n, count].
    """

    scores: Tensor
    parents: Tensor
    tokens: Tensor

    def at(self, places: Tensor) -> "_Continuations":
        """The continuations at the places [n, m] of each sentence."""
        return _Continuations(*(part.gather(1, places) for part in self))

    def unfinished(self, size: int) -> "_Continuations":
        """The best `size` that have not ended, or fewer at a score of −∞ for the rest."""
        ended, order = self.tokens == END, torch.arange(self.tokens.shape[1], device=self.tokens.device)
        alive = self._replace(scores=self.scores.where(~ended, -math.inf))
        return alive.at((ended * len(order) + order).argsort(1)[:, :size])


class _Beams(Generic[S]):
    """The unfinished sequences of the sentences still searched: n sentences, `size` rows each."""

    def __init__(self, state: S, count: int, size: int, device: torch.device) -> None:
        self.size, self.state = size, state.at(torch.arange(count, device=device).repeat_interleave(size))
        self.tokens = torch.full((count, size, 1), BEGIN, device=device)
        # All rows begin alike: only the first may be extended, or the beam would hold each sequence several times.
        self.scores = torch.full((count, size), -math.inf, dtype=torch.float64, device=device)
        self.scores[:, 0] = 0
        self.sentences = torch.arange(count, device=device)

    def follow(self, going_on: _Continuations) -> None:
        """Go on with `size` continuations of each sentence."""
        rows = going_on.parents + self.size * torch.arange(len(going_on.parents), device=self.tokens.device)[:, None]
        self.state = self.state.following(rows.flatten())
        chosen = self.tokens.gather(1, going_on.parents[..., None].expand(-1, -1, self.tokens.shape[2]))
        self.tokens, self.scores = torch.cat([chosen, going_on.tokens[..., None]], 2), going_on.scores

    def keep(self, kept: Tensor) -> None:
        """Go on with some of the sentences, bool [n]."""
        if not kept.all():
            self.state = self.state.at(kept.repeat_interleave(self.size).nonzero().flatten())
            self.tokens, self.scores, self.sentences = self.tokens[kept], self.scores[kept], self.sentences[kept]


def beam_search(
    step: Step[S], state: S, limits: Tensor, size: int, length_penalty: float, probabilities: bool
) -> list[Hypothesis]:
    """The best sequence found for each sentence, by Σ log p / length^length_penalty, END counting to the length.

    A token of probability 0 is never taken. END ends a sequence where it is among the best `size` continuations of its
    sentence. A sentence is done when none of its sequences can still become better than the best that has ended.

    Args:
        step: from the last token of each row [rows] and the state to p of the next [rows, vocabulary], which is
            overwritten, and the state after it.
        state: before the first token, a row a sentence.
        limits: the most tokens that the sequence of each sentence may have before END, int64 [n].
        size: sequences kept for a sentence.
        length_penalty: 0 for none.
        probabilities: whether p ≤ 1, so that a sequence only gets less likely as it grows.

    Returns:
        One a sentence. Where no sequence could end within its limit, the best that did not, at a score of −∞.
    """
    beams, best = _Beams(state, len(limits), size, limits.device), _Best(len(limits), limits.device)
    for length in range(int(limits.max()) + 1):
        p, beams.state = step(beams.tokens[..., -1].flatten(), beams.state)
        at_limit = limits[beams.sentences] == length
        continuations = _best_continuations(beams.scores, p.unflatten(0, (-1, size)), at_limit)
        best.take_ended(beams, continuations, (length + 1) ** length_penalty)

        going_on = continuations.unfinished(size)
        reachable = going_on.scores[:, 0] / (limits[beams.sentences] + 1) ** length_penalty
        if not probabilities:
            reachable = torch.where(reachable.isneginf(), reachable, math.inf)
        searching = ~at_limit & (reachable > best.values[beams.sentences])
        best.take_unfinished(beams, ~searching)
        if not searching.any():
            break
        beams.follow(going_on)
        beams.keep(searching)
    return best.found


class _Best(Generic[S]):
    """The best sequence found so far for each of `count` sentences."""

    def __init__(self, count: int, device: torch.device) -> None:
        self.found = [Hypothesis([], -math.inf)] * count
        self.values = torch.full((count,), -math.inf, dtype=torch.float64, device=device)  # less their penalty

    def take_ended(self, beams: _Beams[S], continuations: _Continuations, penalty: float) -> None:
        """Take what ends among the best continuations, of which as many count as there are rows, where it is better."""
        ended = continuations.tokens == END
        values, places = (continuations.scores.where(ended, -math.inf)[:, : beams.size] / penalty).max(1)
        chosen = continuations.at(places[:, None])
        for row in (values > self.values[beams.sentences]).nonzero().flatten().tolist():
            tokens = beams.tokens[row, chosen.parents[row, 0], 1:].tolist()
            self.found[beams.sentences[row]] = Hypothesis(tokens, chosen.scores[row, 0].item())
        self.values[beams.sentences] = torch.maximum(self.values[beams.sentences], values)

    def take_unfinished(self, beams: _Beams[S], given_up: Tensor) -> None:
        """Take the best row of the sentences given up, bool [n], for which nothing has ended."""
        for row in (given_up & self.values[beams.sentences].isneginf()).nonzero().flatten().tolist():
            self.found[beams.sentences[row]] = Hypothesis(beams.tokens[row, 0, 1:].tolist(), -math.inf)


def _best_continuations(scores: Tensor, p: Tensor, at_limit: Tensor) -> _Continuations:
    """The best 2 · size of each sentence: `size` of them at least have not ended.

    Args:
        scores: of the rows, [n, size].
        p: of the tokens that may follow them, [n, size, vocabulary].
        at_limit: of which sentences no row may become longer, bool [n].
    """
    size, vocabulary = p.shape[1:]
    count = 2 * size
    p[..., [PADDING, BEGIN]] = 0
    p[at_limit] *= torch.arange(vocabulary, device=p.device) == END
    # Of each row the best first, for a logarithm of every 0 takes its time.
    best, tokens = p.topk(min(count, vocabulary))
    totals = (scores[..., None] + best.log()).flatten(1)
    scores, places = totals.topk(count)
    return _Continuations(scores, places // best.shape[2], tokens.flatten(1).gather(1, places))
