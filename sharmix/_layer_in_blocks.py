"""The loss of an output layer and its gradients, block by block: for any loss of logits, on any device."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from sharmix._arguments import widened
from sharmix._targets import checked_classes, nan_if_no_class

_CHUNK_BYTES = 1 << 26  # the size of a chunk of logits; matrix products are faster with more rows
_LEAST_BYTES_ON_CUDA = 1 << 27  # where the host takes over a millisecond for each chunk
_BLOCKS = 16  # in a chunk; the loss is computed block by block, so that temporaries stay in the caches
_DENSE = 0.06  # the share of nonzero errors above which a matrix product is faster than a sum over the nonzero ones

# (logits [rows, classes], classes [rows], parameters, whether the errors are wanted) -> the sum of losses and its
# gradients by the parameters; the errors, which are the gradient by the logits, overwrite the logits
LossOfBlock = Callable[[Tensor, Tensor, Sequence[Tensor], bool], tuple[Tensor, Sequence[Tensor]]]
# the sum of losses, and its gradients: by hidden, weight and bias, and by the parameters
LayerLoss = tuple[Tensor, Sequence[Tensor | None], Sequence[Tensor]]


class OutputLayer(NamedTuple):
    """The rows of an output layer and their targets."""

    hidden: Tensor  # [rows, features]
    weight: Tensor  # [classes, features]
    bias: Tensor | None  # [classes]
    targets: Tensor  # int64 [rows]


def loss_in_blocks(
    loss: LossOfBlock,
    most_classes: int,
    sparse_grad: bool,
    layer: OutputLayer,
    wanted: Sequence[bool],
    parameters: Sequence[Tensor],
) -> LayerLoss:
    """The sum of a loss over the rows, and the `wanted` of its gradients by hidden, weight and bias.

    With `sparse_grad` the gradient by the weight is a sparse tensor of the classes with an error, if few are.
    """
    sums = LayerSums(loss, layer, wanted, parameters, sparse_grad)
    for some, logits in logits_in_parts(layer.hidden, layer.weight, layer.bias, most_classes):
        sums.add(some, logits)
    return sums.collected()


@torch.no_grad()
def logits_in_parts(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, most_classes: int = 0, widens: bool = True
) -> Iterator[tuple[slice, Tensor]]:
    """For a few rows of hidden [rows, features] at a time: the slice of rows, and their logits; by default widened.

    Each part overwrites the one before. If each were allocated anew, the parts would fragment the C library's heap.
    """
    size = len(hidden) * max(len(weight), most_classes) * max(4 if widens else 1, hidden.element_size())
    # On a GPU a chunk may be as large as the gradient of the weight in float32, which each chunk reads and writes.
    most = max(_LEAST_BYTES_ON_CUDA, 4 * weight.numel()) if hidden.is_cuda else _CHUNK_BYTES
    parts = math.ceil(size / most)
    length = max(1, math.ceil(len(hidden) / max(1, parts)))  # about equal: a product of a few last rows is slow
    memory = hidden.new_empty(min(length, len(hidden)), len(weight))
    for start in range(0, len(hidden), length):
        some = slice(start, min(start + length, len(hidden)))
        logits = memory[: some.stop - start]
        if bias is None:
            torch.mm(hidden[some], weight.T, out=logits)
        else:
            torch.addmm(bias, hidden[some], weight.T, out=logits)
        yield some, widened(logits) if widens else logits


def loss_by_autograd(
    loss: Callable[[Tensor, Tensor], Tensor],
    logits: Tensor,
    classes: Tensor,
    parameters: Sequence[Tensor],
    wants_errors: bool,
) -> tuple[Tensor, Sequence[Tensor]]:
    """The sum of any loss, as `LossOfBlock` says."""
    leaf = logits.detach().requires_grad_(wants_errors)
    with torch.set_grad_enabled(wants_errors or bool(parameters)):
        value = loss(leaf, classes)
    if not value.requires_grad:
        return value, [torch.zeros_like(parameter) for parameter in parameters]
    inputs = [*parameters, *[leaf] * wants_errors]
    slopes = list(torch.autograd.grad(value, inputs, allow_unused=True, materialize_grads=True))
    if wants_errors:
        logits.copy_(slopes.pop())
    return value.detach(), slopes


def softmax_loss(
    logits: Tensor, classes: Tensor, parameters: Sequence[Tensor], wants_errors: bool, ignore_index: int
) -> tuple[Tensor, Sequence[Tensor]]:
    """The sum of cross-entropy, which has no parameters: one softmax gives loss and errors."""
    counted = classes != ignore_index
    indices = checked_classes(classes, logits.shape[-1], ignore_index).unsqueeze(-1)
    above_own = logits.amax(-1) - logits.gather(-1, indices).squeeze(-1)
    p = nan_if_no_class(logits.softmax(-1), classes, logits.shape[-1], ignore_index)
    value = torch.where(counted, above_own - p.amax(-1).log(), 0).sum()
    if wants_errors:
        p.scatter_add_(-1, indices, -torch.ones_like(p[:, :1]))
        logits.copy_(p)
        logits[~counted] = 0
    return value, []


class LayerSums:
    """The sum of the losses, and its wanted gradients, float32 or wider, over parts of the rows."""

    def __init__(
        self,
        loss: LossOfBlock,
        layer: OutputLayer,
        wanted: Sequence[bool],
        parameters: Sequence[Tensor],
        sparse: bool,
    ) -> None:
        hidden, weight, bias, self.targets = layer
        self.loss, self.parameters, self.sparse = loss, parameters, sparse
        self.hidden, self.weight = hidden, weight
        self.wide = torch.promote_types(weight.dtype, torch.float32)
        self.value = torch.zeros((), dtype=torch.promote_types(hidden.dtype, torch.float32), device=hidden.device)
        self.by_parameters = [torch.zeros_like(parameter) for parameter in parameters]
        self.wants_errors = True in wanted
        wants_hidden, self.wants_weight, wants_bias = wanted
        self.by_hidden = torch.zeros_like(hidden, dtype=self.wide) if wants_hidden else None
        self.by_bias = torch.zeros_like(bias, dtype=self.wide) if bias is not None and wants_bias else None
        self.by_weight: Tensor | None = None  # summed over the dense chunks
        self.rows, self.classes, self.errors = ([torch.empty_like(hidden[:0, 0], dtype=torch.long)] for _ in range(3))

    def add(self, some: slice | Tensor, logits: Tensor) -> None:
        """Add the rows `some` with the logits [rows, classes], which the errors p − y overwrite."""
        few = math.ceil(len(logits) / (1 if logits.is_cuda else _BLOCKS))
        for block, classes in zip(torch.split(logits, few), torch.split(self.targets[some], few), strict=True):
            self._add_losses(block, classes)
        if self.by_bias is not None:
            self.by_bias += logits.sum(0)
        if self.by_hidden is None and not self.wants_weight:
            return
        error = logits.to(self.weight.dtype)
        # A few rows can show that a chunk is dense. Only the whole chunk can show that it is sparse, which it must be
        # before its nonzero places are listed. On a GPU the host would wait for each of these counts.
        if not error.is_cpu or any(part.count_nonzero() > _DENSE * part.numel() for part in (error[:_BLOCKS], error)):
            if self.by_hidden is not None:
                self.by_hidden[some] = error @ self.weight
            if self.by_weight is None and self.wants_weight:
                self.by_weight = torch.zeros_like(self.weight, dtype=self.wide)
            if self.by_weight is not None and self.wide == error.dtype:
                self.by_weight.addmm_(error.T, self.hidden[some])
            elif self.by_weight is not None:
                self.by_weight += error.T @ self.hidden[some]
            return
        rows, classes = error.nonzero(as_tuple=True)
        self._add_errors(some, rows, classes, error[rows, classes])

    def add_listed(self, some: Tensor, logits: Tensor, classes: Tensor, own: Tensor) -> None:
        """Add the rows `some` with the logits [rows, room] of their `classes` [rows, room]; the others' errors are 0.

        `own` [rows] are the places of the targets in the lists.
        """
        self._add_losses(logits, own)
        if self.wants_errors:
            rows, places = logits.nonzero(as_tuple=True)
            classes, errors = classes[rows, places].long(), logits[rows, places]
            if self.by_bias is not None:
                self.by_bias.index_add_(0, classes, errors)
            self._add_errors(some, rows, classes, errors)

    def _add_losses(self, logits: Tensor, classes: Tensor) -> None:
        value, slopes = self.loss(logits, classes, self.parameters, self.wants_errors)
        self.value = self.value + value
        self.by_parameters = [so_far + slope for so_far, slope in zip(self.by_parameters, slopes, strict=True)]

    def _add_errors(self, some: slice | Tensor, rows: Tensor, classes: Tensor, errors: Tensor) -> None:
        """Add the nonzero errors at sorted `rows` of the rows `some`, and at `classes`."""
        numbers = torch.arange(len(self.hidden), device=rows.device)[some]
        if self.by_hidden is not None:
            self.by_hidden[some] = _grouped_sums(self.weight, classes, errors, rows, len(numbers))
        if self.wants_weight:
            self.rows.append(numbers[rows])
            self.classes.append(classes)
            self.errors.append(errors)

    def collected(self) -> LayerLoss:
        return self.value, (self.by_hidden, self._by_weight(), self.by_bias), self.by_parameters

    def _by_weight(self) -> Tensor | None:
        if not self.wants_weight or (self.by_weight is not None and len(self.rows) == 1):  # no chunk was sparse
            return self.by_weight
        classes, order = torch.cat(self.classes).sort()
        rows, errors = torch.cat(self.rows)[order], torch.cat(self.errors)[order].to(self.weight.dtype)
        if self.sparse and self.by_weight is None:
            touched, place = torch.unique_consecutive(classes, return_inverse=True)
            sums = _grouped_sums(self.hidden, rows, errors, place, len(touched)).to(self.wide)
            return torch.sparse_coo_tensor(
                touched[None], sums, self.weight.shape, check_invariants=False, is_coalesced=True
            )
        by_weight = _grouped_sums(self.hidden, rows, errors, classes, len(self.weight)).to(self.wide)
        return by_weight if self.by_weight is None else by_weight.add_(self.by_weight)


def _grouped_sums(table: Tensor, index: Tensor, factor: Tensor, group: Tensor, groups: int) -> Tensor:
    """Σ factor · table[index] over each group, [groups, features]; `group` is sorted."""
    starts = torch.searchsorted(group, torch.arange(groups, device=group.device))
    return embedding_bag(index, table, starts, mode="sum", per_sample_weights=factor)
