"""The loss of an output layer and its gradients on CUDA. The host reads no value of the device, and so never waits.

1. Each chunk of logits is in the dtype of the weights, and nothing converts it.
2. Sparse products: `lists` of nonzero errors take the place of the gradient p − y, and `products` sums over them.
   Dense products: `rows.loss_of_rows` overwrites the chunk by p − y, for the matrix products of torch.
3. The device decides for each row what is right: sparse products are exact for dense rows, too, but slower. The host
   decides by the supports of an earlier step what is fast.

With label smoothing ε the error is p − y + ε y − ε/classes. The term ε y belongs to the target alone. The last term is
the same for all classes, so each gradient by it is a product of two vectors.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sharmix._operators.orders import Orders
from sharmix._operators.triton import lists, products, solving
from sharmix._operators.triton.launch import ceiling, launch, power_of_two
from sharmix._operators.triton.outputs import Labels, LossOutputs
from sharmix._operators.triton.supports import some_rows, supports_of

_BLOCK = 4096  # classes at a time, of a longer row and of a search
_PIECE, _ROOMS = 256, 2  # entries of a class that one program sums: at least these, and the room of two rows
_FEATURES = 256, 2048  # of one program that gathers rows of the weight, and of hidden
_AT_ONCE = 8  # rows that a program gathers at the same time
_TILES = {torch.float32: (64, 64, 32)}  # larger ones spill registers, where there are no tensor cores
_TILES_OF_HALF = 128, 128, 64


class Layer(NamedTuple):
    """The rows of an output layer, the orders and options of its loss, and what is wanted besides the loss."""

    hidden: Tensor  # [rows, features]
    weight: Tensor  # [classes, features]
    targets: Tensor  # int64 [rows]
    orders: Orders  # numbers, or tensors of one element on the device
    ignore_index: int
    smoothing: float
    gradients: Sequence[bool]  # by hidden, weight and bias
    slopes: bool  # by q, r and T₀


class Chunk(NamedTuple):
    """Some rows: which, their logits, which the gradient may overwrite, labels and outputs."""

    some: slice
    logits: Tensor
    labels: Labels
    out: LossOutputs


def layer_loss(
    parts: Iterable[tuple[slice, Tensor]], layer: Layer, known_by: Tensor
) -> tuple[Tensor, Sequence[Tensor | None], Tensor | None]:
    """The sum of the losses, its gradients by hidden, weight and bias, float32, and its slopes by q, r and T₀, [3].

    `parts` are slices of the rows with their logits, which are overwritten. The loss lacks the entropy of the smoothed
    targets. `known_by` is the weight of the layer in an earlier step.
    """
    hidden, weight, targets = layer[:3]
    layer = layer._replace(hidden=hidden.contiguous(), weight=weight.contiguous(), targets=targets.contiguous())
    losses, slopes = _float32(hidden, len(hidden)), _float32(hidden, len(hidden), 3) if layer.slopes else None
    supports, (wants_hidden, wants_weight, wants_bias) = supports_of(known_by), layer.gradients
    # Lists serve the gradients by hidden and weight. The gradient by the bias comes along with that by the weight.
    room = 0
    if supports is not None and (wants_weight or (wants_hidden and not wants_bias)):
        room = supports.room(len(weight))
    with torch.cuda.device_of(hidden):
        gradients = _SparseGradients(layer, room) if room else _DenseGradients(layer)
        for some, logits in parts:
            labels = Labels(layer.targets[some], layer.ignore_index, None)
            out = LossOutputs(losses[some], None, None, None if slopes is None else slopes[some])
            above = _above_mean(logits, labels) if layer.smoothing else None
            gradients.add(Chunk(some, logits, labels, out))
            if above is not None:
                losses[some] += layer.smoothing * above
        collected = gradients.collected()
        if gradients.counts is not None and supports is not None:
            supports.keep(gradients.counts)
    return losses.sum(), collected, None if slopes is None else slopes.sum(0)


class _DenseGradients:
    """The wanted gradients, summed over chunks by matrix products."""

    def __init__(self, layer: Layer) -> None:
        self.layer, (wants_hidden, wants_weight, wants_bias) = layer, layer.gradients
        self.by_hidden = _float32(layer.hidden, *layer.hidden.shape) if wants_hidden else None
        self.by_weight = _float32(layer.hidden, *layer.weight.shape) if wants_weight else None
        self.by_bias = _float32(layer.hidden, len(layer.weight)).zero_() if wants_bias else None
        self.counts: Tensor | None = None  # the numbers of errors of some rows

    def add(self, chunk: Chunk) -> None:
        """Write losses and slopes, and add the gradients."""
        wants_any = True in self.layer.gradients
        errors, is_first = chunk.logits, chunk.some.start == 0
        self._loss_of_rows(chunk, errors if wants_any else None, None)
        if wants_any and is_first:
            self.counts = some_rows(errors).count_nonzero(-1)
        if self.by_hidden is not None:
            _add_product(self.by_hidden[chunk.some], errors, self.layer.weight, 0)
        if self.by_weight is not None:
            _add_product(self.by_weight, errors.T, self.layer.hidden[chunk.some], 0 if is_first else 1)
        if self.by_bias is not None:
            self.by_bias += errors.sum(0, dtype=torch.float32)

    def collected(self) -> Sequence[Tensor | None]:
        """The gradients by hidden, weight and bias, after all chunks."""
        hidden, weight, targets = self.layer[:3]
        counted, share, constant = targets != self.layer.ignore_index, -self.layer.smoothing / len(weight), None
        if share:
            constant = share * torch.where(counted.unsqueeze(-1), hidden, 0).sum(0, dtype=torch.float32)
        if self.by_weight is not None:
            self._finish_weight(self.by_weight, constant)
        if share and self.by_hidden is not None:
            self.by_hidden.addr_(counted.float(), weight.sum(0, dtype=torch.float32), alpha=share)
        if share and self.by_bias is not None:
            self.by_bias += counted.sum() * share
        return self.by_hidden, self.by_weight, self.by_bias

    def _finish_weight(self, by_weight: Tensor, constant: Tensor | None) -> None:
        """Add what all classes have in common."""
        if constant is not None:
            by_weight += constant

    def _loss_of_rows(self, chunk: Chunk, gradients: Tensor | None, left: Tensor | None) -> None:
        """Write the outputs of the rows that are left, or of all."""
        out = chunk.out._replace(gradients=gradients)
        solving.solve_rows_in_one_program(solving.LOSS, chunk.logits, (chunk.labels, out), self.layer.orders, left)
        if self.layer.smoothing and gradients is not None:  # logits of rows that are not left are read no more
            own, counted = _targets(chunk.labels, chunk.logits.shape[1])
            gradients.scatter_add_(-1, own, (counted * self.layer.smoothing).to(gradients.dtype).unsqueeze(-1))


class _SparseGradients(_DenseGradients):
    """The wanted gradients, summed over lists of nonzero errors, and over the dense rows by products."""

    def __init__(self, layer: Layer, room: int) -> None:
        super().__init__(layer)
        number, memory, self.room = len(layer.hidden), layer.hidden.new_empty, room
        index = torch.int16 if len(layer.weight) < 1 << 15 else torch.int32  # half the passes of the sort
        self.counts = memory(number, dtype=torch.int32)
        self.lists = lists.Lists(
            memory((number, room), dtype=index), memory((number, room), dtype=torch.float32), self.counts
        )
        self.left = memory(number, dtype=torch.int32)
        self.dense = lists.Dense(torch.empty_like(self.left), memory(2, dtype=torch.int32).zero_())
        self.sums = products.Sums(self.by_weight, self.by_bias)

    def add(self, chunk: Chunk) -> None:
        some, logits, labels, out = chunk
        (number, classes), features, room = logits.shape, self.layer.hidden.shape[1], self.room
        here, left = lists.Lists(*(part[some] for part in self.lists)), self.left[some]
        orders, eight = solving.orders_for_kernels(self.layer.orders, logits), {"num_warps": 8}
        arguments: tuple[Any, ...] = logits, labels, out, here, orders, left, self.layer.smoothing, classes
        constants = {"BETA": solving.beta_of(self.layer.orders[0]), **solving.constants_of_lanes(classes), "ROOM": room}
        launch(lists.lists_of_lanes, (number,), arguments, solving.OPTIONS_OF_LANES, **constants)
        self._loss_of_rows(chunk, logits, left)
        programs, block = solving.programs_of(logits, 8), min(_BLOCK, power_of_two(classes))
        launch(lists.lists_of_rows, (programs,), (logits, here, left, number, classes), eight, BLOCK=block, ROOM=room)
        block = min(_BLOCK, power_of_two(number))
        launch(lists.find_dense, (1,), (here.counts, self.dense, number), eight, BLOCK=block, ROOM=room)
        m, n, k = _TILES.get(logits.dtype, _TILES_OF_HALF)
        tiles, options = {"M": m, "N": n, "K": k}, {"num_warps": 8, "num_stages": 3}
        if self.by_hidden is not None:
            by_hidden, block = self.by_hidden[some], min(_FEATURES[0], power_of_two(features))
            constants = {"BLOCK": block, "AT_ONCE": _AT_ONCE, "ROOM": room}
            grid = number, ceiling(features, block)
            arguments = here, self.layer.weight, by_hidden, features
            launch(products.hidden_of_lists, grid, arguments, {"num_warps": 1}, **constants)
            grid = ceiling(features, n), ceiling(number, m)
            arguments = logits, self.layer.weight, by_hidden, self.dense, classes, features
            launch(products.hidden_of_dense_rows, grid, arguments, options, **tiles)
        if self.by_weight is not None:
            grid = ceiling(features, n), ceiling(classes, m)
            arguments = logits, self.layer.hidden[some], self.sums, self.dense, classes, features
            launch(products.weight_of_dense_rows, grid, arguments, options, **tiles)

    def _finish_weight(self, by_weight: Tensor, constant: Tensor | None) -> None:
        (classes, features), hidden = self.layer.weight.shape, self.layer.hidden
        entries, order = self.lists.classes.flatten().sort(stable=True)
        size = max(_PIECE, _ROOMS * self.room)
        most = len(entries) // size  # pieces beside the first of each class: no more, whatever the lists hold
        numbers = torch.arange(classes + most + 1, device=hidden.device)
        starts = torch.searchsorted(entries, numbers[: classes + 1].to(entries.dtype))
        ends = ((starts.diff() + (size - 1)) // size).clamp_min(1).cumsum(0)
        firsts = torch.nn.functional.pad(ends, (1, 0))
        pieces = products.Pieces(order, starts, firsts, torch.searchsorted(ends, numbers[:-1], right=True))
        bias = None if self.by_bias is None else _float32(hidden, most)
        more = products.Sums(_float32(hidden, most, features), bias)
        block = min(_FEATURES[1], power_of_two(features))
        blocks, options = ceiling(features, block), {"num_warps": max(1, block // 256)}
        shape = classes, features
        arguments: tuple[Any, ...] = self.lists, pieces, hidden, self.sums, more, constant, self.dense, *shape
        constants = {"SIZE": size, "BLOCK": block, "AT_ONCE": _AT_ONCE, "ROOM": self.room}
        launch(products.weight_of_lists, (classes + most, blocks), arguments, options, **constants)
        if most:
            of = torch.searchsorted(ends - numbers[1 : classes + 1], numbers[:most], right=True)
            arguments = pieces, self.sums, more, of, classes, features
            launch(products.add_pieces, (most, blocks), arguments, options, BLOCK=block)


def _targets(labels: Labels, classes: int) -> tuple[Tensor, Tensor]:
    """Targets as indices [rows, 1] that exist, and which rows count."""
    return labels.targets.clamp(0, classes - 1).unsqueeze(-1), labels.targets != labels.ignored


def _above_mean(logits: Tensor, labels: Labels) -> Tensor:
    """z_y minus the mean of the logits. Where z_y is −∞, the loss is infinite without it."""
    own, counted = _targets(labels, logits.shape[1])
    above = logits.gather(-1, own).squeeze(-1) - logits.mean(-1, dtype=torch.float32)
    return torch.where(counted, above, 0).nan_to_num(nan=0.0, posinf=math.inf, neginf=-math.inf)


def _float32(like: Tensor, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device=like.device)


def _add_product(total: Tensor, a: Tensor, b: Tensor, beta: int) -> None:
    """total = beta · total + a · b, summed in float32; torch has no such product of half precision on the CPU."""
    if a.dtype == total.dtype or not a.is_cuda:
        torch.addmm(total, a.float(), b.float(), beta=beta, out=total)
    else:
        torch.addmm(total, a, b, torch.float32, beta=beta, out=total)
