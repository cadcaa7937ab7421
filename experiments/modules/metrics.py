"""What is measured of a classifier's output distribution."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor
from torchmetrics import MeanMetric, Metric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

from experiments.errors import ConfigurationError

MEANS = ("loss", "sparsity", "support", "coverage", "zero_true", "brier")
SHOT_MEANS = ("accuracy", "sparsity")


@contextmanager
def _counting() -> Iterator[None]:
    """Without torch's deterministic mode, in which torchmetrics counts a hundred times slower, to the same integers."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(False)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


class OutputMetrics(MetricCollection):
    """Accuracy, macro-F₁, and how the probabilities are spread.

    Update it with logits, probabilities [n, classes], class indices and losses [n]. The predicted class is that of the
    largest logit; all else is a mean over examples:

    loss       the activation's own loss
    sparsity   share of probabilities that are exactly 0
    support    number of classes with probability > 0
    coverage   1 where the true class has probability > 0
    zero_true  1 − coverage
    brier      Σ (pᵢ − yᵢ)²

    Args:
        classes: number of classes.
        shots: for each shot group the classes in it; their `many_accuracy`, `many_sparsity` and so on are means over
            the examples of these classes.
        further: metrics by name that are updated with probabilities and class indices.
    """

    def __init__(
        self, classes: int, shots: Mapping[str, Tensor] | None = None, further: Mapping[str, Metric] | None = None
    ) -> None:
        self.members = {name: torch.isin(torch.arange(classes), group) for name, group in (shots or {}).items()}
        means = [*MEANS, *(f"{group}_{mean}" for group in self.members for mean in SHOT_MEANS)]
        super().__init__(
            {
                "accuracy": MulticlassAccuracy(classes, average="micro"),
                "macro_f1": MulticlassF1Score(classes, average="macro"),
                **{name: MeanMetric(nan_strategy="disable") for name in means},
                **(further or {}),
            },
            compute_groups=False,
        )
        self.further = tuple(further or ())

    def update(self, logits: Tensor, probabilities: Tensor, targets: Tensor, losses: Tensor) -> None:
        predicted = logits.argmax(-1)
        with _counting():
            self["accuracy"].update(predicted, targets)
            self["macro_f1"].update(predicted, targets)
            for name in self.further:
                self[name].update(probabilities, targets)
        true = probabilities.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        zeros = (probabilities == 0).sum(-1)
        means = {
            "loss": losses,
            "sparsity": zeros / probabilities.shape[-1],
            "support": probabilities.shape[-1] - zeros.to(losses.dtype),
            "coverage": (true > 0).to(losses.dtype),
            "zero_true": (true == 0).to(losses.dtype),
            "brier": probabilities.square().sum(-1) - 2 * true + 1,
        }
        for name, values in means.items():
            self[name].update(values)
        by_shot = {"accuracy": (predicted == targets).to(losses.dtype), "sparsity": means["sparsity"]}
        for group, members in self.members.items():
            of_group = members.to(targets.device)[targets]
            for name in SHOT_MEANS:
                self[f"{group}_{name}"].update(by_shot[name][of_group])

    def compute(self) -> dict[str, Tensor]:
        """The metrics of everything seen since the last reset, but for those of groups without an example."""
        of_groups = {f"{group}_{name}" for group in self.members for name in SHOT_MEANS}
        values = super().compute()
        for name in self.further:
            if name not in values or values[name].numel() != 1:
                raise ConfigurationError(
                    f"module.metrics.{name} must give one number; choose a mean, such as average=macro"
                )
        return {name: value for name, value in values.items() if not (name in of_groups and value.isnan().any())}
