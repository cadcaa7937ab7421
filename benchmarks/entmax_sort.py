"""1.5-entmax by the entmax package, which sorts the whole row, or first the 100 largest logits.

These are usually enough.
"""

import entmax
from torch import Tensor

import sharmix


class FullSort(sharmix.Activation):
    """The package's map and loss, which sort every row."""

    largest: int | None = None  # logits of a row that are sorted first; None sorts the whole row

    def probabilities(self, logits: Tensor) -> Tensor:
        return entmax.entmax15(logits, dim=-1, k=self.largest)

    def entropy(self, probabilities: Tensor) -> Tensor:
        return sharmix.sharma_mittal_entropy(probabilities, 1.5, 1.5) / 1.5

    def class_loss(self, logits: Tensor, targets: Tensor, ignore_index: int, reduction: str) -> Tensor:
        reduction = "elementwise_mean" if reduction == "mean" else reduction
        criterion = entmax.Entmax15Loss(k=self.largest, ignore_index=ignore_index, reduction=reduction)
        return criterion(logits, targets)


class TopK(FullSort):
    """The package's map and loss, which first sort the 100 largest logits, as its loss does by default."""

    largest = 100
