"""A network under an output activation, as Lightning trains it."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from experiments.configuration import OptimizerSettings
from experiments.dataset import Batch
from experiments.learner import Learner
from experiments.metrics import OutputMetrics
from sharmix import Activation


class Classifier(Learner):
    """A network from inputs to logits [n, classes]; both splits are measured.

    Args:
        model, activation, optimizer, fused: as for `Learner`.
        label_smoothing: ε; the loss is then against (1 − ε) y + ε/classes.
        classes: number of classes.
        augment: what training does to inputs, given a seed for each.
        shots: the classes of each shot group, measured on the test split.
        running: whether the training split is measured while it trains.
    """

    splits = ("train", "test")

    def __init__(
        self,
        model: nn.Module,
        activation: Activation,
        optimizer: OptimizerSettings,
        fused: bool,
        label_smoothing: float,
        classes: int,
        augment: Callable[[Tensor, Tensor], Tensor] | None,
        shots: Mapping[str, Tensor] | None,
        running: bool,
    ) -> None:
        super().__init__(model, activation, optimizer, fused)
        self.label_smoothing, self.augment, self.running = label_smoothing, augment, running
        self.metrics = nn.ModuleDict(
            {"train_split": OutputMetrics(classes), "test_split": OutputMetrics(classes, shots)}
        )

    def training_step(self, batch: Batch) -> Tensor:
        inputs = batch.inputs if self.augment is None else self.augment(batch.inputs, batch.seeds)
        logits = self.model(inputs)
        with torch.autocast(logits.device.type, enabled=False):
            logits = logits.float()
            if self.running:
                return self._measure("train", logits, batch.targets, self.label_smoothing).mean() * batch.weight
            return self.activation.loss(logits, batch.targets, label_smoothing=self.label_smoothing) * batch.weight

    def validation_step(self, batch: Batch, split: str) -> None:
        logits = self.model(batch.inputs)
        with torch.autocast(logits.device.type, enabled=False):
            self._measure(split, logits.float(), batch.targets)

    def epoch_metrics(self) -> dict[str, float]:
        measured = {split: self._metrics(split).measured() for split in self.splits}
        for split in self.splits:
            self._metrics(split).reset()
        return {f"{split}/{name}": value for split, metrics in measured.items() for name, value in metrics.items()}

    def _measure(self, split: str, logits: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> Tensor:
        """Count a batch to the metrics of its split; the loss of each example."""
        losses = self.activation.loss(logits, targets, label_smoothing=label_smoothing, reduction="none")
        with torch.no_grad():
            self._metrics(split).update(logits, self.activation(logits), targets, losses)
        return losses

    def _metrics(self, split: str) -> OutputMetrics:
        metrics = self.metrics[f"{split}_split"]
        assert isinstance(metrics, OutputMetrics)
        return metrics
