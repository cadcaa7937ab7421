"""A network under an output activation, as Lightning trains it."""

from collections.abc import Callable, Mapping
from typing import Any

import lightning as L
import torch
from torch import Tensor, nn

from experiments.configuration import OptimizerSettings
from experiments.dataset import Batch
from experiments.metrics import OutputMetrics
from sharmix import Activation

SPLITS = ("train", "test")


class Classifier(L.LightningModule):
    """Minimises the activation's own loss by Adam, and measures both splits.

    Args:
        model: from inputs to logits [n, classes].
        activation: from logits to probabilities, always computed in float32; its parameters have a learning rate of
            their own, and are projected into their range after each step.
        optimizer: the two learning rates.
        fused: whether Adam updates all parameters in one kernel, which a gradient scaler does not allow.
        classes: number of classes.
        augment: what training does to inputs, given a seed for each.
        shots: the classes of each shot group, measured on the test split.
        running: whether the training split is measured while it trains.
    """

    def __init__(
        self,
        model: nn.Module,
        activation: Activation,
        optimizer: OptimizerSettings,
        fused: bool,
        classes: int,
        augment: Callable[[Tensor, Tensor], Tensor] | None,
        shots: Mapping[str, Tensor] | None,
        running: bool,
    ) -> None:
        super().__init__()
        self.model = model
        self.activation = activation
        self.optimizer_settings, self.fused = optimizer, fused
        self.augment, self.running = augment, running
        self.metrics = nn.ModuleDict(
            {"train_split": OutputMetrics(classes), "test_split": OutputMetrics(classes, shots)}
        )

    def training_step(self, batch: Batch) -> Tensor:
        """The loss whose gradients, summed over the step's batches, make the step."""
        inputs = batch.inputs if self.augment is None else self.augment(batch.inputs, batch.seeds)
        logits = self.model(inputs)
        with torch.autocast(logits.device.type, enabled=False):
            logits = logits.float()
            if self.running:
                return self._measure("train", logits, batch.targets).mean() * batch.weight
            return self.activation.loss(logits, batch.targets) * batch.weight

    def validation_step(self, batch: Batch, split: str) -> None:
        """Count a batch to the metrics of its split."""
        logits = self.model(batch.inputs)
        with torch.autocast(logits.device.type, enabled=False):
            self._measure(split, logits.float(), batch.targets)

    def epoch_metrics(self) -> dict[str, float]:
        """`split/metric` values of what was measured since the last call."""
        measured = {split: self._metrics(split).measured() for split in SPLITS}
        for split in SPLITS:
            self._metrics(split).reset()
        return {f"{split}/{name}": value for split, metrics in measured.items() for name, value in metrics.items()}

    def entropy_values(self) -> dict[str, float]:
        """The learned entropy parameters by name, those that are one number."""
        named = self.activation.named_parameters()
        return {name: parameter.item() for name, parameter in named if parameter.numel() == 1}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        groups: list[dict[str, Any]] = [
            {"params": list(self.model.parameters()), "lr": self.optimizer_settings.learning_rate}
        ]
        if entropy := self.activation.entropy_parameters():
            groups.append({"params": entropy, "lr": self.optimizer_settings.entropy_learning_rate})
        return torch.optim.Adam(groups, fused=self.fused)

    def _measure(self, split: str, logits: Tensor, targets: Tensor) -> Tensor:
        """Count a batch to the metrics of its split; the loss of each example."""
        losses = self.activation.loss(logits, targets, reduction="none")
        with torch.no_grad():
            self._metrics(split).update(logits, self.activation(logits), targets, losses)
        return losses

    def _metrics(self, split: str) -> OutputMetrics:
        metrics = self.metrics[f"{split}_split"]
        assert isinstance(metrics, OutputMetrics)
        return metrics
