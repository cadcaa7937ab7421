"""The metrics of a translation model: of its next-token distribution, and of its translations."""

import math
from operator import eq
from statistics import fmean

import torch
import torch.distributed
from sacrebleu.metrics import BLEU, CHRF
from torch import Tensor

from experiments.modules.beam_search import Hypothesis
from experiments.modules.metrics import DistributionMetrics


class TokenMetrics(DistributionMetrics):
    """The metrics of the predicted tokens. Each prediction gets the correct tokens before it.

    accuracy          1 where the largest logit belongs to the correct token
    sparsity_in_use   sparsity over the token numbers in training targets, not over the vocabulary
    support_to_n      1 where the support is at most n, for n = 1, 2, 4, … up to the vocabulary

    `types_in_use` marks the token numbers that occur in training targets, bool [vocabulary].
    """

    def __init__(self, types_in_use: Tensor) -> None:
        size = len(types_in_use)
        limits = [2**power for power in range(size.bit_length() + 1) if 2**power < 2 * size]
        super().__init__("accuracy", "sparsity_in_use", *(f"support_to_{limit}" for limit in limits))
        self.types_in_use, self.support_limits = types_in_use, limits

    def update(self, logits: Tensor, probabilities: Tensor, targets: Tensor, losses: Tensor) -> None:
        """Count logits and probabilities [n, vocabulary], targets and losses [n]."""
        self.types_in_use = self.types_in_use.to(targets.device)
        inside = probabilities > 0
        support, in_use = inside.sum(-1), (inside & self.types_in_use).sum(-1)
        self.count(
            losses,
            probabilities.gather(-1, targets.unsqueeze(-1)).squeeze(-1),
            accuracy=logits.argmax(-1) == targets,
            sparsity=1 - support / len(self.types_in_use),
            sparsity_in_use=1 - in_use / self.types_in_use.sum(),
            support=support,
            **{f"support_to_{limit}": support <= limit for limit in self.support_limits},
        )


class SentenceMetrics:
    """The metrics of the translations of a split.

    bleu              SacreBLEU of the corpus, detokenised and case-sensitive, 0 to 100
    chrf              chrF2 of the corpus, 0 to 100
    exact_match       share of sentences translated as the reference
    empty_preferred   share whose empty translation is more probable than the (non-empty) translation found
    empty_possible    share whose empty translation has a probability > 0
    unfinished        share for which no translation was found to end within its limit

    Source: Post, A Call for Clarity in Reporting BLEU Scores, 2018; for the empty translation Stahlberg and Byrne,
    2019, and Speeding Up Entmax, section 4.1.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._seen: dict[int, tuple[Hypothesis, str, str, float]] = {}

    def update(
        self, indices: Tensor, found: list[Hypothesis], texts: list[str], references: list[str], empty: Tensor
    ) -> None:
        """Count sentences by their index: the found tokens, their text, the reference, log p of the empty one [n]."""
        sentences = zip(found, texts, references, empty.tolist(), strict=True)
        self._seen |= dict(zip(indices.tolist(), sentences, strict=True))

    def compute(self) -> dict[str, float]:
        """The metrics of all sentences since the last reset, over all processes."""
        by_process = [self._seen]
        if torch.distributed.is_initialized():
            by_process = [{} for _ in range(torch.distributed.get_world_size())]
            torch.distributed.all_gather_object(by_process, self._seen)
        together = {index: sentence for seen in by_process for index, sentence in seen.items()}
        sentences = [together[index] for index in sorted(together)]
        found, texts, references, empty = zip(*sentences, strict=True)
        return {
            "bleu": BLEU().corpus_score(texts, [references]).score,
            "chrf": CHRF().corpus_score(texts, [references]).score,
            "exact_match": fmean(map(eq, texts, references)),
            "empty_preferred": fmean(bool(one.tokens) and log_p > one.score for one, _, _, log_p in sentences),
            "empty_possible": fmean(log_p > -math.inf for log_p in empty),
            "unfinished": fmean(one.score == -math.inf for one in found),
        }


def signatures() -> dict[str, str]:
    """The settings of BLEU and chrF, as sacrebleu's signatures."""
    bleu, chrf = BLEU(), CHRF()
    for metric in (bleu, chrf):
        metric.corpus_score(["a"], [["a"]])  # a signature is complete only after its metric was used
    return {"bleu": str(bleu.get_signature()), "chrf": str(chrf.get_signature())}
