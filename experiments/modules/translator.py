"""A Transformer with an output activation: its training and its translations."""

import math
import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel
from torchmetrics import SumMetric

from experiments.data.examples import Batch
from experiments.data.special_tokens import BEGIN, END, PADDING
from experiments.data.translation import TranslationData
from experiments.modules.base import OutputModule
from experiments.modules.beam_search import BeamSettings, Hypothesis, beam_search
from experiments.modules.optimizer import AdamSettings
from experiments.modules.translation_metrics import SentenceMetrics, TokenMetrics, signatures
from experiments.networks.attention import KeysValues
from experiments.networks.transformer import Memory, Transformer
from experiments.settings import OpenShare, Share, YesNo, validated
from sharmix import Activation

ROWS = 512  # of logits at a time when measuring
DECODING_SECONDS = "decoding_seconds"  # of the translations of an epoch


class Translator(OutputModule):
    """Minimises the loss of each next token, given the correct tokens before it; measures tokens, and translates.

    Arguments: as for `OutputModule`, and `conf/module/translator.yaml`. `data` holds the vocabulary, the references
    and the text of the tokens.
    """

    selected_by = "dev/bleu"
    headline = "bleu"

    @validated
    def __init__(
        self,
        network: Transformer,
        activation: Activation,
        optimizer: AdamSettings,
        *,
        data: TranslationData,
        beam: BeamSettings,
        label_smoothing: Share = 0.0,
        average_decay: OpenShare | None = None,
        compile: YesNo = False,
    ) -> None:
        super().__init__(network, activation, optimizer, label_smoothing, compile)
        self.beam, self.measured_by = beam, signatures()
        self.text, self.references = data.text, {"dev": data.dev.references, "test": data.test.references}
        # Two sums, because torchmetrics has no weighted mean that passes NaN on.
        self.loss_sum, self.token_count = (SumMetric(nan_strategy="disable") for _ in range(2))
        self.decoding_seconds = 0.0
        self.tokens = nn.ModuleDict({split: TokenMetrics(data.types_in_use()) for split in self.references})
        self.sentences = {split: SentenceMetrics() for split in self.references}
        self.average = None
        if average_decay is not None:

            def averaged(average: Tensor, current: Tensor, steps: Tensor) -> Tensor:
                """x̄ ← (1 − d) x̄ + d x with d = max(average_decay, 9/(10 + steps)), as OpenNMT-py averages them."""
                decay = torch.clamp(9 / (10 + steps), min=average_decay)
                return average + decay.to(average) * (current - average)

            self.average = AveragedModel(network, avg_fn=averaged).requires_grad_(False)

    @property
    def evaluated(self) -> Transformer:
        """The network that is measured and that translates: the trained network, or the average of its parameters."""
        return self.network if self.average is None else self.average.module

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        given, wanted = batch.targets[:, :-1], batch.targets[:, 1:]
        real = wanted != PADDING
        hidden, targets = self.network(batch.inputs, given)[real], wanted[real]
        layer = self.network.embedding.weight, self.network.output_bias
        options = {"label_smoothing": self.label_smoothing, "reduction": "sum"}  # the mean over no token is NaN
        total = self.activation.linear_loss(hidden, *layer, targets, **options)
        self._measured["training"].add("train")
        self.loss_sum.update(total.detach())
        self.token_count.update(len(targets))
        loss = total / max(1, len(targets))
        return loss if batch.weight == 1 else loss * batch.weight

    def after_step(self) -> None:
        super().after_step()
        if self.average is not None:
            self.average.update_parameters(self.network)

    def measure(self, batch: Batch) -> None:
        wanted = batch.targets[:, 1:]
        real = wanted != PADDING
        hidden = self.evaluated(batch.inputs, batch.targets[:, :-1])[real]
        for some, targets in zip(hidden.split(ROWS), wanted[real].split(ROWS), strict=True):
            self._count(self.tokens[batch.split], self._logits(some), targets)
        since = time.perf_counter()
        found, empty = self.translate(batch.inputs)
        self.decoding_seconds += time.perf_counter() - since
        texts = [self.text(hypothesis.tokens) for hypothesis in found]
        references = [self.references[batch.split][index] for index in batch.indices.tolist()]
        self.sentences[batch.split].update(batch.indices, found, texts, references, empty)

    def predict_step(self, batch: Batch, batch_idx: int, dataloader_idx: int = 0) -> list[str]:
        return self.translations(batch.inputs)

    def translations(self, source: Tensor) -> list[str]:
        """The sentence found for each source [n, length]."""
        return [self.text(hypothesis.tokens) for hypothesis in self.translate(source)[0]]

    @torch.no_grad()
    def translate(self, source: Tensor) -> tuple[list[Hypothesis], Tensor]:
        """The translation found for each source [n, length], and log p of its empty translation [n]."""
        memory = self.evaluated.encode(source)
        limits = (self.beam.limit_ratio * (source != PADDING).sum(-1)).long() + self.beam.limit_extra
        probabilities = self.activation.normalised or self.beam.scores == "normalised"
        found = beam_search(self._step, memory, limits, self.beam.size, self.beam.length_penalty, probabilities)
        first, _ = self._step(torch.full_like(limits, BEGIN), memory, None)
        return found, first[:, END].log()

    def take_metrics(self, split: str) -> dict[str, Any]:
        if split == "train":
            values = {"loss": self.loss_sum.compute() / self.token_count.compute()}
            self.loss_sum.reset()
            self.token_count.reset()
            return values
        values = self.tokens[split].compute() | self.sentences[split].compute()
        self.tokens[split].reset()
        self.sentences[split].reset()
        return values

    def on_validation_epoch_end(self) -> None:
        super().on_validation_epoch_end()
        self.log(DECODING_SECONDS, self.decoding_seconds)
        self.decoding_seconds = 0.0

    def _step(self, tokens: Tensor, memory: Memory, past: list[KeysValues] | None) -> tuple[Tensor, list[KeysValues]]:
        hidden, past = self.evaluated.decode(tokens[:, None], memory, past)
        return next_probabilities(self.activation, self._logits(hidden[:, 0]), self.beam.scores), past

    def _logits(self, hidden: Tensor) -> Tensor:
        with self.full_precision(hidden.device):
            return self.evaluated.logits(hidden.to(self.evaluated.output_bias.dtype))


def next_probabilities(activation: Activation, logits: Tensor, scores: str) -> Tensor:
    """p of each token for beam search, from logits [rows, vocabulary].

    If the activation is not normalised, PADDING and BEGIN get p = 0, because they never follow a token. If then no
    other token has p > 0, the other token with the largest logit gets p = 1. `scores`: `normalised` divides p by its
    sum, `raw` does not.
    """
    p = activation(logits)
    if activation.normalised:
        return p
    never = torch.tensor([PADDING, BEGIN], device=logits.device)
    p = p.index_fill(-1, never, 0)
    total = p.sum(-1, keepdim=True)
    if scores == "normalised":
        p /= total.where(total > 0, 1)
    empty = (total == 0).squeeze(-1)
    p[empty, logits[empty].index_fill(-1, never, -math.inf).argmax(-1)] = 1
    return p
