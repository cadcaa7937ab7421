"""A Transformer under an output activation, as it is trained, and as it translates."""

import math
import time
from collections.abc import Callable
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel
from torchmetrics import SumMetric

from experiments.attention import KeysValues
from experiments.beam_search import Hypothesis, beam_search
from experiments.configuration import BeamSettings, OptimizerSettings
from experiments.curves import DECODING_SECONDS
from experiments.dataset import Batch
from experiments.learner import Learner
from experiments.sentence_pairs import TranslationData
from experiments.special_tokens import BEGIN, END, PADDING
from experiments.transformer import Memory, Transformer
from experiments.translation_metrics import SentenceMetrics, TokenMetrics, signatures
from sharmix import Activation

ROWS = 512  # of logits at a time when measuring


class _Progress(NamedTuple):
    """What the decoder knows of the translations so far, one a row."""

    memory: Memory
    past: list[KeysValues] | None

    def at(self, rows: Tensor) -> Self:
        past = None if self.past is None else [layer.at(rows) for layer in self.past]
        return self._replace(memory=self.memory.at(rows), past=past)

    def following(self, rows: Tensor) -> Self:
        return self._replace(past=None if self.past is None else [layer.at(rows) for layer in self.past])


class Translator(Learner):
    """Minimises the loss of each next token given the right ones before it; measures tokens, and translates.

    Args:
        model: from source and target tokens to hidden states, and from these to logits.
        activation, optimizer, fused: as for `Learner`.
        label_smoothing: ε; the loss is then against (1 − ε) y + ε/vocabulary.
        data: for its vocabulary, its references and the text that tokens stand for.
        beam: how it translates.
    """

    splits = ("train", "dev", "test")
    selected_by = "dev/bleu"

    def __init__(
        self,
        model: Transformer,
        activation: Activation,
        optimizer: OptimizerSettings,
        fused: bool,
        label_smoothing: float,
        data: TranslationData,
        beam: BeamSettings,
    ) -> None:
        super().__init__(model, activation, optimizer, fused)
        self.beam, self.label_smoothing = beam, label_smoothing
        self.text, self.references = data.text, {"dev": data.dev.references, "test": data.test.references}
        # Two sums, for a mean that lets NaN through takes no weights.
        self.loss_sum, self.token_count = (SumMetric(nan_strategy="disable") for _ in range(2))
        self.decoding_seconds = 0.0
        self.tokens = nn.ModuleDict({split: TokenMetrics(data.types_in_use()) for split in self.references})
        self.sentences = {split: SentenceMetrics() for split in self.references}
        self.average = None
        if optimizer.average_decay is not None:
            self.average = AveragedModel(model, avg_fn=_averaging(optimizer.average_decay)).requires_grad_(False)

    @property
    def evaluated(self) -> Transformer:
        """The network that is measured and translates: the trained one, or the average of what it was."""
        model = self.model if self.average is None else self.average.module
        assert isinstance(model, Transformer)
        return model

    def training_step(self, batch: Batch) -> Tensor:
        given, wanted = batch.targets[:, :-1], batch.targets[:, 1:]
        real = wanted != PADDING
        hidden = self.model(batch.inputs, given)[real]
        weight, bias = self.model.embedding.weight, self.model.output_bias
        loss = self.activation.linear_loss(hidden, weight, bias, wanted[real], label_smoothing=self.label_smoothing)
        self.loss_sum.update(loss.detach() * real.sum())
        self.token_count.update(real.sum())
        return loss * batch.weight

    def after_step(self) -> None:
        super().after_step()
        if self.average is not None:
            self.average.update_parameters(self.model)

    def validation_step(self, batch: Batch, split: str) -> None:
        wanted = batch.targets[:, 1:]
        real = wanted != PADDING
        hidden = self.evaluated(batch.inputs, batch.targets[:, :-1])[real]
        for some, targets in zip(hidden.split(ROWS), wanted[real].split(ROWS), strict=True):
            logits = self._logits(some)
            losses = self.activation.loss(logits, targets, reduction="none")
            self.tokens[split].update(logits, self.activation(logits), targets, losses)
        since = time.perf_counter()
        found, empty = self.translate(batch.inputs)
        self.decoding_seconds += time.perf_counter() - since
        texts = [self.text(hypothesis.tokens) for hypothesis in found]
        references = [self.references[split][index] for index in batch.indices.tolist()]
        self.sentences[split].update(batch.indices, found, texts, references, empty)

    @torch.no_grad()
    def translate(self, source: Tensor) -> tuple[list[Hypothesis], Tensor]:
        """The translation found for each source [n, length], and log p of its empty translation [n]."""
        memory = self.evaluated.encode(source)
        limits = (self.beam.limit_ratio * (source != PADDING).sum(-1)).long() + self.beam.limit_extra
        found = beam_search(
            self._step,
            _Progress(memory, None),
            limits,
            self.beam.size,
            self.beam.length_penalty,
            probabilities=self.activation.normalised or self.beam.scores == "normalised",
        )
        first, _ = self._step(torch.full_like(limits, BEGIN), _Progress(memory, None))
        return found, first[:, END].log()

    def epoch_metrics(self) -> dict[str, float]:
        row = {
            DECODING_SECONDS: self.decoding_seconds,
            "train/loss": (self.loss_sum.compute() / self.token_count.compute()).item(),
        }
        self.decoding_seconds = 0.0
        self.loss_sum.reset()
        self.token_count.reset()
        for split in self.references:
            for metrics in (self.tokens[split], self.sentences[split]):
                row |= {f"{split}/{name}": value for name, value in metrics.measured().items()}
                metrics.reset()
        return row

    def measured_by(self) -> dict[str, str]:
        return signatures()

    def _step(self, tokens: Tensor, progress: _Progress) -> tuple[Tensor, _Progress]:
        hidden, past = self.evaluated.decode(tokens[:, None], progress.memory, progress.past)
        p = next_probabilities(self.activation, self._logits(hidden[:, 0]), self.beam.scores)
        return p, progress._replace(past=past)

    def _logits(self, hidden: Tensor) -> Tensor:
        with torch.autocast(hidden.device.type, enabled=False):
            return self.evaluated.logits(hidden.float())


def next_probabilities(activation: Activation, logits: Tensor, scores: str) -> Tensor:
    """p of each token, as beam search scores it.

    Args:
        activation: the map p. Where it is not normalised, PADDING and BEGIN get nothing, for they never follow, and the
            largest logit of the others gets it all where nothing else is left.
        logits: [rows, vocabulary].
        scores: `normalised` divides p by its sum, `raw` takes it as it is.
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


def _averaging(least: float) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """x̄ ← (1 − d) x̄ + d x with d = max(least, 9/(10 + steps)), as OpenNMT-py averages parameters."""

    def average(averaged: Tensor, current: Tensor, steps: Tensor) -> Tensor:
        decay = torch.clamp(9 / (10 + steps), min=least)
        return averaged + decay.to(averaged) * (current - averaged)

    return average
