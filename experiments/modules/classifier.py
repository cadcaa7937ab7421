"""A network for classification under an output activation."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import Metric

from experiments.data.examples import Batch
from experiments.errors import ConfigurationError, UserError
from experiments.modules.base import OutputModule
from experiments.modules.metrics import OutputMetrics
from experiments.modules.optimizer import AdamSettings
from experiments.settings import AtLeastOne, Share, YesNo, validated
from sharmix import Activation


class Classifier(OutputModule):
    """A network from inputs to logits [n, num_classes], under an output activation.

    Arguments: as for `OutputModule`, and `conf/module/classifier.yaml`. `shots` are the classes of each shot group,
    measured on validation and test. Further metrics are updated with probabilities [n, num_classes] and classes [n].
    """

    headline = "accuracy"

    @validated
    def __init__(
        self,
        network: nn.Module,
        activation: Activation,
        optimizer: AdamSettings,
        *,
        num_classes: AtLeastOne,
        shots: dict[str, Tensor] | None = None,
        metrics: dict[str, Callable[..., Metric]] | None = None,
        label_smoothing: Share = 0.0,
        channels_last: YesNo = False,
        compile: YesNo = False,
    ) -> None:
        super().__init__(network, activation, optimizer, label_smoothing, compile)
        self.num_classes, self.metrics = num_classes, nn.ModuleDict()
        if channels_last:
            network.to(memory_format=torch.channels_last)
        for split, groups in {"train": None, "validation": shots, "test": shots}.items():
            further = {name: make(num_classes=num_classes) for name, make in (metrics or {}).items()}
            self.metrics[f"{split}_split"] = OutputMetrics(num_classes, groups, further)

    @torch.no_grad()
    def check(self, inputs: Tensor) -> None:
        """Raise a ConfigurationError if the network or the activation has an output of the wrong shape, or no loss.

        The inputs are those of examples, [n, ...].
        """
        kind = f"model: {type(self.network).__name__}"
        activation = copy.deepcopy(self.activation)  # α-ReLU learns its threshold from the first logits
        with torch.random.fork_rng(devices=[]):
            try:
                output = copy.deepcopy(self.network).eval()(inputs)
            except Exception as error:  # a network of the user's own may raise any error
                given = f"inputs of shape {tuple(inputs.shape)} and type {inputs.dtype}"
                raise ConfigurationError(f"{kind} cannot read {given}: {error}") from error
            logits = self._of_shape(kind, output, inputs, (len(inputs), self.num_classes)).float()
            kind = f"activation: {type(activation).__name__}"
            self._of_shape(kind, activation(logits), logits, (len(inputs), self.num_classes))
            targets = torch.zeros(len(inputs), dtype=torch.int64)
            self._of_shape(f"{kind}.loss", activation.loss(logits, targets), logits, ())

    def _of_shape(self, kind: str, output: Any, inputs: Tensor, wanted: tuple[int, ...]) -> Any:
        found = tuple(getattr(output, "shape", ()))
        if found != wanted:
            raise ConfigurationError(
                f"{kind} gives an output of shape {found} for inputs of shape {tuple(inputs.shape)} and "
                f"{self.num_classes} classes; it must be {wanted}"
            )
        return output

    def _as_batch(self, batch: Any) -> Batch:
        """A batch of any other DataLoader as the suite's: inputs and targets, or inputs alone for predictions."""
        if isinstance(batch, Batch):
            return batch
        inputs, *targets = [batch] if isinstance(batch, Tensor) else batch
        if not targets and not self.trainer.predicting:
            raise UserError("the DataLoader gives inputs without targets; give pairs of both, or call predict")
        numbers = torch.arange(len(inputs))
        split = "train" if self.trainer.training else "test" if self.trainer.testing else "validation"
        return Batch(inputs, targets[0] if targets else numbers[:0], numbers, numbers, 1.0, split)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        batch = self._as_batch(batch)
        logits = self.network(batch.inputs)
        with self.full_precision(logits.device):
            logits = logits.float()
            if batch.split is None:
                loss = self.activation.loss(logits, batch.targets, label_smoothing=self.label_smoothing)
            else:
                self._measured["training"].add(batch.split)
                metrics = self.metrics[f"{batch.split}_split"]
                loss = self._count(metrics, logits, batch.targets, self.label_smoothing).mean()
            return loss if batch.weight == 1 else loss * batch.weight

    def measure(self, batch: Batch) -> None:
        logits = self.network(batch.inputs)
        with self.full_precision(logits.device):
            self._count(self.metrics[f"{batch.split}_split"], logits.float(), batch.targets)

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        super().validation_step(self._as_batch(batch), batch_idx, dataloader_idx)

    def predict_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Tensor:
        return self.probabilities(self._as_batch(batch).inputs)

    def probabilities(self, inputs: Tensor) -> Tensor:
        """The probabilities of the classes, [n, num_classes]."""
        return self.activation(self.network(inputs).float())

    def take_metrics(self, split: str) -> dict[str, Any]:
        metrics = self.metrics[f"{split}_split"]
        values = metrics.compute()
        metrics.reset()
        return values
