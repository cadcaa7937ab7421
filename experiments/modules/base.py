"""The base of every LightningModule of the suite: a network and an output activation, trained by its loss."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import lightning.pytorch as L
import torch
from torch import Tensor, nn

from experiments.data.examples import Batch
from experiments.modules.metrics import DistributionMetrics
from experiments.modules.optimizer import AdamSettings
from sharmix import Activation
from sharmix.activations import AlphaReLU


class OutputModule(L.LightningModule, ABC):
    """Minimises the output activation's own loss, and measures the splits whose batches it sees.

    The output activation is always computed in float32. Activations inside the network, for example in attention,
    learn like the output activation. After each step of the optimizer, entropy parameters are projected into their
    range. Metrics are logged at the end of an epoch, as `split/metric`, and learned entropy parameters by their names.

    With `label_smoothing` ε, the training loss is against (1 − ε) y + ε/classes. With `compile`, torch.compile compiles
    the network.
    """

    selected_by: str | None = None  # the `split/metric` whose largest value selects the reported epoch; None: the last
    headline: str  # the metric that a progress bar shows
    measured_by: Mapping[str, str] = {}  # for the record: how metrics are computed, where there are several ways

    def __init__(
        self,
        network: nn.Module,
        activation: Activation,
        optimizer: AdamSettings,
        label_smoothing: float,
        compile: bool,
    ) -> None:
        super().__init__()
        self.network, self.activation, self.optimizer_settings = network, activation, optimizer
        self.label_smoothing = label_smoothing
        inner = {name: module for name, module in network.named_modules() if isinstance(module, Activation)}
        self.inner_activations = {name.rpartition(".")[0]: activation for name, activation in inner.items()}
        self._activations = [activation, *self.inner_activations.values()]
        self._learning = [one for one in self._activations if [*one.entropy_parameters()]]
        self._measured: dict[str, set[str]] = {"training": set(), "evaluation": set()}
        if compile:
            network.compile()

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_current_fx_name":  # Lightning sets it forty times a step, and torch checks every attribute
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    @abstractmethod
    def measure(self, batch: Batch) -> None:
        """Count an evaluation batch in the metrics of its split."""

    @abstractmethod
    def take_metrics(self, split: str) -> dict[str, float | Tensor]:
        """The metrics of a split since they were last taken, over all processes."""

    def forward(self, inputs: Tensor) -> Tensor:
        return self.network(inputs)

    def validation_step(self, batch: Batch, batch_idx: int, dataloader_idx: int = 0) -> None:
        if self.lacks_threshold() and self.trainer.sanity_checking:
            return  # the first training batch calibrates the threshold
        self._measured["evaluation"].add(batch.split)
        if len(batch.targets):
            self.measure(batch)

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        self.validation_step(batch, batch_idx)

    def on_validation_epoch_end(self) -> None:
        self._log_metrics("evaluation")

    def on_test_epoch_end(self) -> None:
        self.on_validation_epoch_end()

    def on_train_epoch_end(self) -> None:
        self._log_metrics("training")
        self.log_dict(self.entropy_values())

    def configure_optimizers(self) -> dict[str, Any]:
        entropy = [parameter for activation in self._learning for parameter in activation.entropy_parameters()]
        known = {id(parameter) for parameter in entropy}
        network = [parameter for parameter in self.network.parameters() if id(parameter) not in known]
        fused = "mixed" not in str(self.trainer.precision)  # mixed precision: Lightning cannot clip a fused one
        optimizer, schedule = self.optimizer_settings.optimizer(network, entropy, fused)
        optimizer.register_step_post_hook(lambda *_: self.after_step())
        schedules = {"lr_scheduler": {"scheduler": schedule, "interval": "step"}} if schedule else {}
        return {"optimizer": optimizer, **schedules}

    @staticmethod
    def full_precision(device: torch.device) -> AbstractContextManager[None]:
        """Turns mixed precision off for the code after the network; costs nothing if it is off already."""
        kind = device.type
        return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()

    def after_step(self) -> None:
        """Project the entropy parameters into their range; the optimizer calls it after each of its steps."""
        for activation in self._learning:
            activation.project_()

    def entropy_values(self) -> dict[str, float]:
        """The entropy parameters by name: single numbers of the output activation, and one number for each head."""
        own = [*self.activation.named_parameters(), *self.activation.named_buffers()]
        values = {name: value.item() for name, value in own if value.numel() == 1}
        for place, activation in self.inner_activations.items():
            for name, parameter in activation.named_parameters():
                for head, value in enumerate(parameter.flatten().tolist()):
                    values[f"{place}.head_{head}.{name}"] = value
        return values

    def lacks_threshold(self) -> bool:
        """Whether an α-ReLU has no threshold yet: its first batch calibrates it."""
        return any(isinstance(one, AlphaReLU) and not one.calibrated for one in self._activations)

    def _count(
        self, metrics: DistributionMetrics, logits: Tensor, targets: Tensor, label_smoothing: float = 0.0
    ) -> Tensor:
        """The loss of each example, from logits [n, classes]. The metrics are updated with it."""
        losses = self.activation.loss(logits, targets, label_smoothing=label_smoothing, reduction="none")
        with torch.no_grad():
            metrics.update(logits, self.activation(logits), targets, losses)
        return losses

    def _log_metrics(self, kind: str) -> None:
        for split in sorted(self._measured[kind]):
            for name, value in self.take_metrics(split).items():
                self.log(f"{split}/{name}", value, prog_bar=name in ("loss", self.headline))
        self._measured[kind].clear()
