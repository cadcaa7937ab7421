"""Beam search for the most probable sequence, for many sentences at once."""

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

import torch
from lightning_utilities import apply_to_collection
from pydantic import Field
from torch import Tensor

from experiments.data.special_tokens import BEGIN, END, PADDING
from experiments.settings import AtLeastOne, NotNegative, NotNegativeNumber, Settings

Step = Callable[[Tensor, Any, Any], tuple[Tensor, Any]]


class BeamSettings(Settings):
    """How beam search translates: `conf/module/translator.yaml`."""

    size: AtLeastOne
    limit_ratio: NotNegativeNumber
    limit_extra: NotNegative
    length_penalty: Annotated[NotNegativeNumber, Field(le=100)] = 0.0  # a power of the length
    scores: Literal["normalised", "raw"] = "normalised"


class Hypothesis(NamedTuple):
    """A sequence and its score."""

    tokens: list[int]  # without BEGIN and END
    score: float  # Σ log p of its tokens and END; −∞ if it could not end within its limit


def beam_search(
    step: Step, memory: Any, limits: Tensor, size: int, length_penalty: float, probabilities: bool
) -> list[Hypothesis]:
    """The best sequence found for each sentence, by Σ log p / length^length_penalty; the length includes END.

    A token of probability 0 is never chosen. END ends a sequence if it is among the best `size` continuations of the
    sentence. The search for a sentence stops when no open sequence can become better than the best ended sequence.

    Args:
        step: a function of the last token of each row [rows], the memory and the past. It returns p of the next token
            [rows, vocabulary], which is overwritten, and the new past.
        memory: the tensors that all sequences of a sentence share, one row a sentence, in any nest of containers.
            The past has the same form with one row a sequence; it is None before the first token.
        limits: the largest number of tokens before END in the sequence of each sentence, int64 [n].
        size: sequences kept for a sentence.
        length_penalty: 0 for none.
        probabilities: whether p ≤ 1, so that a sequence becomes less probable as it grows.

    Returns:
        One sequence for each sentence. If no sequence could end within its limit, the best open one, with score −∞.
    """
    count, device = len(limits), limits.device
    found = [Hypothesis([], -math.inf)] * count
    best = torch.full((count,), -math.inf, dtype=torch.float64, device=device)  # the best ended score, penalised
    sentences = torch.arange(count, device=device)  # still searched, with `size` sequences each
    tokens = torch.full((count, size, 1), BEGIN, device=device)
    # All rows begin alike. Only the first is extended; otherwise the beam would hold each sequence several times.
    scores = torch.full((count, size), -math.inf, dtype=torch.float64, device=device)
    scores[:, 0] = 0
    memory, past = _rows(memory, sentences.repeat_interleave(size)), None
    for length in range(int(limits.max()) + 1):
        p, past = step(tokens[..., -1].flatten(), memory, past)
        at_limit = limits[sentences] == length
        # Each [sentences, 2 · size], the best first: scores, the row of the sentence that is continued, and its token.
        scores, parents, following = _best_continuations(scores, p.unflatten(0, (-1, size)), at_limit)

        # A sequence that ends among the first `size` is kept if it is better than the best so far.
        ended = following == END
        values, places = (scores.where(ended, -math.inf)[:, :size] / (length + 1) ** length_penalty).max(1)
        for row in (values > best[sentences]).nonzero().flatten().tolist():
            place = places[row]
            found[sentences[row]] = Hypothesis(tokens[row, parents[row, place], 1:].tolist(), scores[row, place].item())
        best[sentences] = torch.maximum(best[sentences], values)

        # The first `size` open sequences continue, [sentences, size], if they can still become better.
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

        # The rows of a sentence change places. They share the memory, so the memory stays.
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
    """The best 2 · size sequences of each sentence that are one token longer. At least `size` of them have not ended.

    Given are the scores of the rows [n, size], p of the next tokens [n, size, vocabulary], and which sentences have
    reached their limit [n]. Returned are the new scores, the row that each sequence continues, and its new token.
    """
    p[..., [PADDING, BEGIN]] = 0
    p[at_limit] *= torch.arange(p.shape[2], device=p.device) == END
    # The best tokens of each row are selected first, because a logarithm of every 0 takes time.
    best, tokens = p.topk(min(2 * p.shape[1], p.shape[2]))
    totals = (scores[..., None] + best.log()).flatten(1)
    scores, places = totals.topk(2 * p.shape[1])
    return scores, places // best.shape[2], tokens.flatten(1).gather(1, places)
