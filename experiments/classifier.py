"""A network under an output activation, as Lightning trains it."""

from typing import Any

import lightning as L
import torch
from torch import Tensor, nn

from experiments.configuration import OptimizerSettings
from experiments.metrics import OutputMetrics
from sharmix import Activation

SPLITS = ("train", "test")


class Classifier(L.LightningModule):
    """Minimises the activation's own loss by Adam; measures both splits after every epoch.

    Args:
        model: from inputs to logits [n, classes].
        activation: from logits to probabilities; its parameters have a learning rate of their own, and are projected
            into their range after each step.
        optimizer: the two learning rates.
        classes: number of classes.
    """

    def __init__(self, model: nn.Module, activation: Activation, optimizer: OptimizerSettings, classes: int) -> None:
        super().__init__()
        self.model = model
        self.activation = activation
        self.optimizer_settings = optimizer
        self.metrics = nn.ModuleDict({f"{split}_split": OutputMetrics(classes) for split in SPLITS})

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        inputs, targets = batch
        return self.activation.loss(self.model(inputs).float(), targets)

    def validation_step(self, batch: tuple[Tensor, Tensor], _: int, dataloader_idx: int = 0) -> None:
        inputs, targets = batch
        logits = self.model(inputs).float()
        losses = self.activation.loss(logits, targets, reduction="none")
        self._metrics(SPLITS[dataloader_idx]).update(logits, self.activation(logits), targets, losses)

    def epoch_metrics(self) -> dict[str, dict[str, float]]:
        """For each split, what was measured since the last call."""
        measured = {split: self._metrics(split).measured() for split in SPLITS}
        for split in SPLITS:
            self._metrics(split).reset()
        return measured

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
        return torch.optim.Adam(groups, fused=True)

    def optimizer_step(self, *arguments: Any, **keywords: Any) -> None:
        super().optimizer_step(*arguments, **keywords)
        self.activation.project_()

    def _metrics(self, split: str) -> OutputMetrics:
        metrics = self.metrics[f"{split}_split"]
        assert isinstance(metrics, OutputMetrics)
        return metrics
