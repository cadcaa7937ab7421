"""Beam search for the likeliest sequence, for many sentences at once."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from lightning_utilities import apply_to_collection
from torch import Tensor

from experiments.data.special_tokens import BEGIN, END, PADDING

Step = Callable[[Tensor, Any, Any], tuple[Tensor, Any]]


class Hypothesis(NamedTuple):
    """A sequence and its score.

    Attributes:
        tokens: without BEGIN and END.
        score: Σ log p of its tokens and END; −∞ where it could not end within its limit.
    """

    tokens: list[int]
    score: float


def beam_search(
    step: Step, memory: Any, limits: Tensor, size: int, length_penalty: float, probabilities: bool
) -> list[Hypothesis]:
    """The best sequence found for each sentence, by Σ log p / length^length_penalty, END counting to the length.

    A token of probability 0 is never taken. END ends a sequence where it is among the best `size` continuations of its
    sentence. A sentence is done when none of its sequences can still become better than the best that has ended.

    Args:
        step: from the last token of each row [rows], the memory and the past to p of the next [rows, vocabulary], which
            is overwritten, and the past after it.
        memory: what the sequences of a sentence share: tensors with a row a sentence, in any nest of containers. The
            past is the like with a row a sequence, None before the first token.
        limits: the most tokens that the sequence of each sentence may have before END, int64 [n].
        size: sequences kept for a sentence.
        length_penalty: 0 for none.
        probabilities: whether p ≤ 1, so that a sequence only gets less likely as it grows.

    Returns:
        One a sentence. Where no sequence could end within its limit, the best that did not, at a score of −∞.
    """
    count, device = len(limits), limits.device
    found = [Hypothesis([], -math.inf)] * count
    best = torch.full((count,), -math.inf, dtype=torch.float64, device=device)  # of those that have ended, penalised
    sentences = torch.arange(count, device=device)  # those still searched, with `size` sequences each
    tokens = torch.full((count, size, 1), BEGIN, device=device)
    # All rows begin alike: only the first may be extended, or the beam would hold each sequence several times.
    scores = torch.full((count, size), -math.inf, dtype=torch.float64, device=device)
    scores[:, 0] = 0
    memory, past = _rows(memory, sentences.repeat_interleave(size)), None
    for length in range(int(limits.max()) + 1):
        p, past = step(tokens[..., -1].flatten(), memory, past)
        at_limit = limits[sentences] == length
        # Each [sentences, 2 · size], the best first: scores, the row of the sentence that is continued, and its token.
        scores, parents, following = _best_continuations(scores, p.unflatten(0, (-1, size)), at_limit)

        # What ends among the first `size` is kept where it is better than the best before.
        ended = following == END
        values, places = (scores.where(ended, -math.inf)[:, :size] / (length + 1) ** length_penalty).max(1)
        for row in (values > best[sentences]).nonzero().flatten().tolist():
            place = places[row]
            found[sentences[row]] = Hypothesis(tokens[row, parents[row, place], 1:].tolist(), scores[row, place].item())
        best[sentences] = torch.maximum(best[sentences], values)

        # The first `size` that have not ended go on, [sentences, size], where they can still become better.
        unfinished = ended.long().argsort(dim=1, stable=True)[:, :size]
        scores = scores.where(~ended, -math.inf).gather(1, unfinished)
        parents, following = parents.gather(1, unfinished), following.gather(1, unfinished)
        reachable = scores[:, 0] / (limits[sentences] + 1) ** length_penalty
        if not probabilities:
            reachable = reachable.where(reachable.isneginf(), math.inf)
        searching = ~at_limit & (reachable > best[sentences])
        for row in (~searching & best[sentences].isneginf()).nonzero().flatten().tolist():
            found[sentences[row]] = Hypothesis(tokens[row, 0, 1:].tolist(), -math.inf)
        if not searching.any():
            break

        # Rows of a sentence change places; the memory does not, for they share it.
        rows = parents + size * torch.arange(len(parents), device=device)[:, None]
        tokens = torch.cat([tokens.flatten(0, 1)[rows], following[..., None]], 2)
        past = _rows(past, rows.flatten())
        if not searching.all():
            memory, past = _rows((memory, past), searching.repeat_interleave(size).nonzero().flatten())
            sentences, tokens, scores = sentences[searching], tokens[searching], scores[searching]
    return found


def _rows(nest: Any, rows: Tensor) -> Any:
    """The rows [m] of each tensor in a nest of containers."""
    return apply_to_collection(nest, Tensor, lambda tensor: tensor.index_select(0, rows))


def _best_continuations(scores: Tensor, p: Tensor, at_limit: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The best 2 · size sequences of each sentence that are one token longer: `size` of them at least have not ended.

    Args:
        scores: of the rows, [n, size].
        p: of the tokens that may follow them, [n, size, vocabulary].
        at_limit: of which sentences no row may become longer, bool [n].

    Returns:
        Their scores, which row of the sentence each continues, and by which token: [n, 2 · size], the best first.
    """
    p[..., [PADDING, BEGIN]] = 0
    p[at_limit] *= torch.arange(p.shape[2], device=p.device) == END
    # Of each row the best first, for a logarithm of every 0 takes its time.
    best, tokens = p.topk(min(2 * p.shape[1], p.shape[2]))
    totals = (scores[..., None] + best.log()).flatten(1)
    scores, places = totals.topk(2 * p.shape[1])
    return scores, places // best.shape[2], tokens.flatten(1).gather(1, places)
