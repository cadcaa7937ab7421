"""What every trained model of the suite is: a network under an output activation, as the training loop sees it."""

from abc import ABC, abstractmethod
from typing import Any

import lightning as L
import torch
from torch import Tensor, nn

from experiments.configuration import OptimizerSettings
from experiments.dataset import Batch
from sharmix import Activation


class Learner(L.LightningModule, ABC):
    """Minimises the output activation's own loss by Adam, and measures splits.

    Args:
        model: the network; activations inside it, such as those of attention, learn as the output activation does.
        activation: of the output, always computed in float32.
        optimizer: learning rates and moments. Entropy parameters have a learning rate of their own, and are projected
            into their range after each step.
        fused: whether Adam updates all parameters in one kernel, which a gradient scaler does not allow.

    Attributes:
        splits: what a run's record gives the metrics of.
        within: the activations inside the network, by the name of the module that each belongs to.
        selected_by: the `split/metric` whose largest value selects the epoch reported; None reports the last.
    """

    splits: tuple[str, ...]
    selected_by: str | None = None

    def __init__(self, model: nn.Module, activation: Activation, optimizer: OptimizerSettings, fused: bool) -> None:
        super().__init__()
        self.model, self.activation = model, activation
        self.optimizer_settings, self.fused = optimizer, fused
        named = model.named_modules()
        self.within = {name.rpartition(".")[0]: module for name, module in named if isinstance(module, Activation)}

    @abstractmethod
    def training_step(self, batch: Batch) -> Tensor:
        """The loss whose gradients, summed over the step's batches, make the step."""

    @abstractmethod
    def validation_step(self, batch: Batch, split: str) -> None:
        """Count a batch to the metrics of its split."""

    @abstractmethod
    def epoch_metrics(self) -> dict[str, float]:
        """`split/metric` values of what was measured since the last call."""

    def measured_by(self) -> dict[str, str]:
        """What a record is to say of how the metrics are computed, where there are several ways."""
        return {}

    def after_step(self) -> None:
        """What follows each step of the optimizer."""
        for activation in (self.activation, *self.within.values()):
            activation.project_()

    def entropy_values(self) -> dict[str, float]:
        """The learned entropy parameters by name: the output's that are one number, the network's for each head."""
        own = [*self.activation.named_parameters(), *self.activation.named_buffers()]
        within = {
            f"{place}.head_{head}.{name}": value
            for place, activation in self.within.items()
            for name, parameter in activation.named_parameters()
            for head, value in enumerate(parameter.flatten().tolist())
        }
        return {name: value.item() for name, value in own if value.numel() == 1} | within

    def configure_optimizers(self) -> torch.optim.Optimizer:
        settings = self.optimizer_settings
        activations = (self.activation, *self.within.values())
        entropy = [parameter for activation in activations for parameter in activation.entropy_parameters()]
        known = {id(parameter) for parameter in entropy}
        network = [parameter for parameter in self.model.parameters() if id(parameter) not in known]
        groups: list[dict[str, Any]] = [{"params": network, "lr": settings.learning_rate}]
        if entropy:
            groups.append({"params": entropy, "lr": settings.entropy_learning_rate})
        return torch.optim.Adam(groups, betas=(settings.beta1, settings.beta2), fused=self.fused)
