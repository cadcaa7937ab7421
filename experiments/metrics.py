"""What is measured of a classifier's output distribution."""

from torch import Tensor
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

MEANS = ("loss", "sparsity", "support", "coverage", "zero_true", "brier")


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
    """

    def __init__(self, classes: int) -> None:
        super().__init__(
            {
                "accuracy": MulticlassAccuracy(classes, average="micro"),
                "macro_f1": MulticlassF1Score(classes, average="macro"),
                **{name: MeanMetric(nan_strategy="disable") for name in MEANS},
            }
        )

    def update(self, logits: Tensor, probabilities: Tensor, targets: Tensor, losses: Tensor) -> None:
        predicted = logits.argmax(-1)
        self["accuracy"].update(predicted, targets)
        self["macro_f1"].update(predicted, targets)
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

    def measured(self) -> dict[str, float]:
        """The metrics of everything seen since the last reset."""
        return {name: value.item() for name, value in self.compute().items()}
