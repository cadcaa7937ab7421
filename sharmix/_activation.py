"""The base class of every activation: a map and an entropy, from which its loss follows."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor, nn

from sharmix import _linear_loss
from sharmix._arguments import checked_dim, classes_last, widened
from sharmix._dtensor import is_dtensor, loss_of_rows
from sharmix._fenchel_young import (
    LinearLossOptions,
    LossOptions,
    Reduction,
    composed_class_loss,
    fenchel_young_loss,
)
from sharmix._targets import check_shape
from sharmix.functional import SharmaMittalRegulariser

# The values that `repr` leaves out.
_USUAL = {"learned": (), "objective": "fenchel_young", "dim": -1, "nonconcave": "global", "masked_rows": "nan"}


class Activation(nn.Module, ABC):
    """A map from logits to probabilities, with the Fenchel–Young loss of its entropy.

        p* = argmax_p  p·z + entropy(p),      L(z, y) = p*·z + entropy(p*) − z·y − entropy(y)

    A subclass defines `probabilities` and `entropy`; `forward` and `loss` follow from them.

    Args:
        dim: the dimension that holds the classes, in the logits and in targets that are probabilities.

    Shape:
        logits (*, C, *) with C classes along `dim`; p* the same; targets: class indices (*, *), or probabilities
        (*, C, *).

    Example:
        >>> class Halved(sharmix.Activation):
        ...     def probabilities(self, logits):
        ...         return (logits / 2).softmax(-1)
        ...
        ...     def entropy(self, probabilities):
        ...         return 2 * sharmix.sharma_mittal_entropy(probabilities, 1.0, 1.0)
        >>> Halved().loss(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
        tensor(0.6265)
    """

    normalised = True  # outputs sum to 1, and do not change when a constant is added to the logits

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = checked_dim(dim)

    @abstractmethod
    def probabilities(self, logits: Tensor) -> Tensor:
        """Probabilities [..., classes] of logits [..., classes]; the logits are float32 or wider."""

    @abstractmethod
    def entropy(self, probabilities: Tensor) -> Tensor:
        """The entropy [...] of probabilities [..., classes]: the concave function that the map adds to p·z.

        It does not depend on the order of the classes. Where the map is `normalised`, the entropy of a one-hot p is 0.
        A class of probability 0 adds nothing to the entropy. Where the map can give 0, the derivative at 0 is finite.
        """

    def conjugate(self, logits: Tensor) -> Tensor:
        """The conjugate max_p p·z + entropy(p), [...], of logits [..., classes]. Its gradient is the map."""
        p = self.probabilities(logits)
        entropy = self.entropy(p)
        if isinstance(entropy, Tensor) and entropy.shape != p.shape[:-1]:
            shapes = f"{tuple(entropy.shape)} for probabilities of shape {tuple(p.shape)}"
            raise ValueError(f"{type(self).__name__}.entropy must return one number for each row, got shape {shapes}")
        return (p * torch.where(p > 0, logits, 0)).sum(-1) + entropy

    def class_loss(self, logits: Tensor, targets: Tensor, ignore_index: int, reduction: Reduction) -> Tensor:
        """The reduced loss of logits [..., classes] against one class index for each row, int64 [...]."""
        return composed_class_loss(self, logits, targets, ignore_index, reduction)

    def forward(self, logits: Tensor) -> Tensor:
        """Probabilities with the shape and dtype of the logits, classes along `dim`; computed in float32 or wider.

        Raises:
            TypeError: the logits are not floating-point numbers.
            IndexError: there is no dimension `dim`.
        """
        if isinstance(logits, Tensor) and logits.dim() == 0:  # torch, too, reads a scalar as one class
            return self(logits[None])[0]
        p = self.probabilities(widened(classes_last(logits, "logits", self.dim)))
        last = self.dim in (-1, logits.dim() - 1)
        p = p if last else p.movedim(-1, self.dim).clone(memory_format=torch.contiguous_format)
        return p if p.dtype == logits.dtype else p.to(logits.dtype)  # `to` takes 1 µs even where it changes nothing

    def loss(self, logits: Tensor, targets: Tensor, **options: Unpack[LossOptions]) -> Tensor:
        """The Fenchel–Young loss Ω*(z) − z·y + Ω(y) with Ω = −entropy and Ω* its conjugate.

        Arguments, options, returns and raises are as for `fenchel_young_loss`.
        """
        if self.dim != -1:
            given, logits = logits, classes_last(logits, "logits", self.dim)
            if isinstance(targets, Tensor):
                check_shape(given, targets, self.dim)
                targets = targets.movedim(self.dim, -1) if targets.is_floating_point() else targets
        return self._loss(logits, targets, **options)

    def _loss(self, logits: Tensor, targets: Tensor, **options: Unpack[LossOptions]) -> Tensor:
        """The loss of logits [..., classes]."""
        if is_dtensor(logits):
            return loss_of_rows(self._loss, logits, targets, {}, **options)
        return fenchel_young_loss(self, widened(classes_last(logits, "logits", -1)), targets, **options)

    def linear_loss(
        self,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        **options: Unpack[LinearLossOptions],
    ) -> Tensor:
        """The `loss` of the logits hidden · weightᵀ + bias, for large vocabularies.

        All is as for `linear_fenchel_young_loss`. Each entropy parameter must hold one value.
        A parameter that the loss does not use gets the gradient 0.
        """
        loss, learned = self._loss_of_parts(), [*self.parameters(), *self.buffers()]
        return _linear_loss.linear_loss(loss, learned, hidden, weight, bias, targets, self._regulariser(), **options)

    def _regulariser(self) -> SharmaMittalRegulariser | None:
        """The regulariser of the loss, if it is one of SharMiX's, for which `linear_loss` has faster ways."""
        return None

    def _loss_of_parts(self) -> Callable[..., Tensor]:
        """The function that computes the loss of some rows of a linear layer's logits, [rows, classes]."""
        return self.loss if self.dim == -1 else self._loss

    def entropy_parameters(self) -> list[nn.Parameter]:
        """The learned parameters of the map, so that an optimizer can give them a learning rate of their own."""
        return list(self.parameters())

    def project_(self) -> None:
        """Put every learned parameter back into its range. The library's own stay in their ranges without a call."""

    def extra_repr(self) -> str:
        return ", ".join(
            f"{key}={getattr(self, key)!r}" for key, usual in _USUAL.items() if getattr(self, key, usual) != usual
        )
