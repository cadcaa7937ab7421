"""The metrics of an output distribution."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor
from torchmetrics import MeanMetric, Metric, MetricCollection
from torchmetrics.classification import MulticlassF1Score

from experiments.errors import ConfigurationError


class DistributionMetrics(MetricCollection):
    """Means over examples, or over tokens to predict.

    loss       the activation's own loss
    sparsity   share of probabilities that are exactly 0
    support    number of probabilities > 0
    coverage   1 where the target has a probability > 0
    zero_true  1 − coverage
    """

    means = ("loss", "sparsity", "support", "coverage", "zero_true")

    def __init__(self, *means: str, **others: Metric) -> None:
        metrics = {name: MeanMetric(nan_strategy="disable") for name in (*self.means, *means)}
        super().__init__(metrics | others, compute_groups=False)

    def count(self, losses: Tensor, true: Tensor, **means: Tensor) -> None:
        """Count losses, probabilities of the targets and the values of all other means, each [n]."""
        means |= {"loss": losses, "coverage": true > 0, "zero_true": true == 0}
        for name, values in means.items():
            self[name].update(values.to(losses.dtype))


class OutputMetrics(DistributionMetrics):
    """The metrics of a classifier.

    accuracy   share of examples whose largest logit belongs to the true class
    macro_f1   mean over classes of F₁
    brier      Σ (pᵢ − yᵢ)²

    Args:
        classes: number of classes.
        shots: the classes of each shot group; `many_accuracy`, `many_sparsity` and so on are means over the examples
            of these classes.
        further: metrics by name that are updated with probabilities and class indices.
    """

    def __init__(
        self, classes: int, shots: Mapping[str, Tensor] | None = None, further: Mapping[str, Metric] | None = None
    ) -> None:
        self.members = {name: torch.isin(torch.arange(classes), group) for name, group in (shots or {}).items()}
        self.of_shots = [f"{group}_{mean}" for group in self.members for mean in ("accuracy", "sparsity")]
        self.further = dict(further or {})
        taken = ("accuracy", "macro_f1", *self.means, "brier", *self.of_shots)
        for name in {*self.further} & {*taken}:
            allowed = f"give a name that is not measured already ({', '.join(taken)})"
            raise ConfigurationError(f"module.metrics.{name} is not allowed; {allowed}")
        macro_f1 = MulticlassF1Score(classes, average="macro")
        super().__init__("accuracy", "brier", *self.of_shots, macro_f1=macro_f1, **self.further)

    def update(self, logits: Tensor, probabilities: Tensor, targets: Tensor, losses: Tensor) -> None:
        """Count logits and probabilities [n, classes], class indices and losses [n]."""
        predicted, classes = logits.argmax(-1), probabilities.shape[-1]
        with _nondeterministic():
            self["macro_f1"].update(predicted, targets)
            for name in self.further:
                self[name].update(probabilities, targets)
        true = probabilities.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        zeros = (probabilities == 0).sum(-1)
        means = {"accuracy": predicted == targets, "sparsity": zeros / classes}
        for group, members in self.members.items():
            of_group = members.to(targets.device)[targets]
            means |= {f"{group}_{name}": means[name][of_group] for name in ("accuracy", "sparsity")}
        brier = probabilities.square().sum(-1) - 2 * true + 1
        self.count(losses, true, support=classes - zeros, brier=brier, **means)

    def compute(self) -> dict[str, Tensor]:
        """The metrics of all examples since the last reset. Groups without an example are left out."""
        values = super().compute()
        for name, value in values.items():
            if not isinstance(value, int | float) and getattr(value, "shape", None) not in ((), (1,)):
                raise ConfigurationError(f"module.metrics.{name} computes several numbers; it must compute one number")
        return {name: value for name, value in values.items() if name not in self.of_shots or not value.isnan()}


@contextmanager
def _nondeterministic() -> Iterator[None]:
    """Turns off torch's deterministic mode, in which torchmetrics counts the same integers a hundred times slower."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(False)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
