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
import triton
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from sharmix._operators.orders import Orders
from sharmix._operators.triton import equation, lists, products, rows
from sharmix._operators.triton.outputs import Labels, LossOutputs

_IN_REGISTERS = 32768  # classes of a row that one program can hold
_BLOCK = 4096  # classes at a time, of a longer row and of a search
_LANES = 2048
_PIECE = 256  # entries of a class that one program sums
_FEATURES = 256, 2048  # of one program that gathers rows of the weight, and of hidden
_AT_ONCE = 8  # rows that a program gathers at the same time
_TILES = {torch.float32: (64, 64, 32)}  # larger ones spill registers, where there are no tensor cores
_TILES_OF_HALF = 128, 128, 64
_SAMPLE = 256  # rows whose supports the host gets to know
_LEAST_ROOM, _MOST_ROOM = 32, 1024
_SHARE = 200  # sums over lists are faster than products where the mean support is at most classes/200,
_DENSE = 0.1  # and at most this share of the rows has no list


class Layer(NamedTuple):
    """The rows of an output layer: hidden [rows, features], weight [classes, features], and targets, int64 [rows]."""

    hidden: Tensor
    weight: Tensor
    targets: Tensor


class Settings(NamedTuple):
    """q, r and T₀, numbers or tensors of one element on the device; options; and what is wanted besides the loss."""

    orders: Orders
    ignore_index: int
    smoothing: float
    gradients: Sequence[bool]  # by hidden, weight and bias
    slopes: bool


class Chunk(NamedTuple):
    """Some rows: which, their logits, which the gradient may overwrite, labels and outputs."""

    some: slice
    logits: Tensor
    labels: Labels
    out: LossOutputs


def layer_loss(
    parts: Iterable[tuple[slice, Tensor]], layer: Layer, settings: Settings, key: Tensor
) -> tuple[Tensor, Sequence[Tensor | None], Tensor | None]:
    """The sum of the losses, its gradients by hidden, weight and bias, float32, and its slopes by q, r and T₀, [3].

    `parts` are slices of the rows with their logits, which are overwritten. The loss lacks the entropy of the smoothed
    targets. `key` is the weight by which an earlier step is known.
    """
    layer = Layer(*(part.contiguous() for part in layer))
    losses = _float32(layer.hidden, len(layer.hidden))
    slopes = _float32(layer.hidden, len(layer.hidden), 3) if settings.slopes else None
    supports = _known.get(key)
    if supports is None:
        supports = _known[key] = _Supports(key.is_cuda)
    wants_hidden, wants_weight, wants_bias = settings.gradients
    # Lists serve the gradients by hidden and weight. The gradient by the bias comes along with that by the weight.
    room = supports.room(len(layer.weight)) if wants_weight or (wants_hidden and not wants_bias) else 0
    gradients = _SparseGradients(layer, settings, room) if room else _DenseGradients(layer, settings)
    with torch.cuda.device_of(layer.hidden):
        for some, logits in parts:
            labels = Labels(layer.targets[some], settings.ignore_index, None)
            out = LossOutputs(losses[some], None, None, None if slopes is None else slopes[some])
            above = _above_mean(logits, labels) if settings.smoothing else None
            gradients.add(Chunk(some, logits, labels, out))
            if above is not None:
                losses[some] += settings.smoothing * above
        collected = gradients.collected()
    supports.keep(gradients.counts)
    return losses.sum(), collected, None if slopes is None else slopes.sum(0)


class _DenseGradients:
    """The wanted gradients, summed over chunks by matrix products."""

    def __init__(self, layer: Layer, settings: Settings) -> None:
        self.layer, self.settings = layer, settings
        wants_hidden, wants_weight, wants_bias = settings.gradients
        self.by_hidden = _float32(layer.hidden, *layer.hidden.shape) if wants_hidden else None
        self.by_weight = _float32(layer.hidden, *layer.weight.shape) if wants_weight else None
        self.by_bias = _float32(layer.hidden, len(layer.weight)).zero_() if wants_bias else None
        self.orders, self.beta = _orders_for_kernels(settings.orders)
        self.counts: Tensor | None = None  # the numbers of errors of some rows

    def add(self, chunk: Chunk) -> None:
        """Write losses and slopes, and add the gradients."""
        wants_any = True in self.settings.gradients
        errors, is_first = chunk.logits, chunk.some.start == 0
        self._loss_of_rows(chunk, errors if wants_any else None, None)
        if wants_any and is_first:
            self.counts = errors[:: math.ceil(len(errors) / _SAMPLE)].count_nonzero(-1)
        if self.by_hidden is not None:
            _add_product(self.by_hidden[chunk.some], errors, self.layer.weight, 0)
        if self.by_weight is not None:
            _add_product(self.by_weight, errors.T, self.layer.hidden[chunk.some], 0 if is_first else 1)
        if self.by_bias is not None:
            self.by_bias += errors.sum(0, dtype=torch.float32)

    def collected(self) -> Sequence[Tensor | None]:
        """The gradients by hidden, weight and bias, after all chunks."""
        smoothing, constant = self.settings.smoothing, self._constant()
        if self.by_weight is not None:
            self._finish_weight(constant)
        counted = self.layer.targets != self.settings.ignore_index
        if smoothing and self.by_hidden is not None:
            self.by_hidden.addr_(counted.float(), self.layer.weight.mean(0, dtype=torch.float32), alpha=-smoothing)
        if smoothing and self.by_bias is not None:
            self.by_bias -= counted.sum() * (smoothing / len(self.by_bias))
        return self.by_hidden, self.by_weight, self.by_bias

    def _finish_weight(self, constant: Tensor | None) -> None:
        if self.by_weight is not None and constant is not None:
            self.by_weight += constant

    def _constant(self) -> Tensor | None:
        """What the smoothing adds to each row of the weight's gradient."""
        if not self.settings.smoothing or self.by_weight is None:
            return None
        counted = (self.layer.targets != self.settings.ignore_index).unsqueeze(-1)
        total = torch.where(counted, self.layer.hidden, 0).sum(0, dtype=torch.float32)
        return total * (-self.settings.smoothing / len(self.layer.weight))

    def _loss_of_rows(self, chunk: Chunk, gradients: Tensor | None, left: Tensor | None) -> None:
        """Write the outputs of the rows that are left, or of all."""
        number, classes = chunk.logits.shape
        whole = classes <= _IN_REGISTERS
        block = triton.next_power_of_2(classes) if whole else _BLOCK
        warps = max(1, min(32 if whole else 16, block // 128))
        out = chunk.out._replace(gradients=gradients)
        rows.loss_of_rows[(_programs(chunk.logits, warps),)](
            chunk.logits, chunk.labels, out, self.orders, left, number, classes,
            BETA=self.beta, BLOCK=block, WHOLE=whole, num_warps=warps,
        )  # fmt: skip
        # ROUGH ROWS: `loss_of_rows` passes over the rows for which `equation.is_smooth` is false, as orders on the
        # device can make them. `rows_in_float64.loss_of_rows_in_float64` takes the same arguments, and belongs here.
        if self.settings.smoothing and gradients is not None:  # logits of rows that are not left are read no more
            own, counted = _targets(chunk.labels, classes)
            gradients.scatter_add_(-1, own, (counted * self.settings.smoothing).to(gradients.dtype).unsqueeze(-1))


class _SparseGradients(_DenseGradients):
    """The wanted gradients, summed over lists of nonzero errors, and over the dense rows by products."""

    def __init__(self, layer: Layer, settings: Settings, room: int) -> None:
        super().__init__(layer, settings)
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
        lanes = min(_LANES, triton.next_power_of_2(classes))
        low = max(32, triton.next_power_of_2(triton.cdiv(classes, lanes))) - 1
        limit = {"maxnreg": 80} if logits.is_cuda else {}  # so that three programs share a multiprocessor
        lists.lists_of_lanes[(number,)](
            logits, labels, out, here, self.orders, left, self.settings.smoothing, classes,
            BETA=self.beta, BLOCK=lanes, LOW=low, ROOM=room, num_warps=max(1, lanes // 256), **limit,
        )  # fmt: skip
        self._loss_of_rows(chunk, logits, left)
        programs, block = _programs(logits, 8), min(_BLOCK, triton.next_power_of_2(classes))
        lists.lists_of_rows[(programs,)](logits, here, left, number, classes, BLOCK=block, ROOM=room, num_warps=8)
        block = min(_LANES, triton.next_power_of_2(number))
        lists.find_dense[(1,)](here.counts, self.dense, number, BLOCK=block, ROOM=room, num_warps=8)
        m, n, k = _TILES.get(logits.dtype, _TILES_OF_HALF)
        tiles = {"M": m, "N": n, "K": k, "num_warps": 8, "num_stages": 3}
        if self.by_hidden is not None:
            by_hidden, block = self.by_hidden[some], min(_FEATURES[0], triton.next_power_of_2(features))
            products.hidden_of_lists[(number, triton.cdiv(features, block))](
                here, self.layer.weight, by_hidden, features, BLOCK=block, AT_ONCE=_AT_ONCE, ROOM=room, num_warps=1
            )
            products.hidden_of_dense_rows[(triton.cdiv(features, n), triton.cdiv(number, m))](
                logits, self.layer.weight, by_hidden, self.dense, classes, features, **tiles
            )
        if self.by_weight is not None:
            products.weight_of_dense_rows[(triton.cdiv(features, n), triton.cdiv(classes, m))](
                logits, self.layer.hidden[some], self.sums, self.dense, classes, features, **tiles
            )

    def _finish_weight(self, constant: Tensor | None) -> None:
        (classes, features), hidden = self.layer.weight.shape, self.layer.hidden
        entries, order = self.lists.classes.flatten().sort(stable=True)
        most = len(entries) // _PIECE  # pieces beside the first of each class: no more, whatever the lists hold
        numbers = torch.arange(classes + most + 1, device=hidden.device)
        starts = torch.searchsorted(entries, numbers[: classes + 1].to(entries.dtype))
        ends = ((starts.diff() + (_PIECE - 1)) // _PIECE).clamp_min(1).cumsum(0)
        firsts = torch.nn.functional.pad(ends, (1, 0))
        pieces = products.Pieces(order, starts, firsts, torch.searchsorted(ends, numbers[:-1], right=True))
        bias = None if self.by_bias is None else _float32(hidden, most)
        more = products.Sums(_float32(hidden, most, features), bias)
        block = min(_FEATURES[1], triton.next_power_of_2(features))
        blocks, options = triton.cdiv(features, block), {"BLOCK": block, "num_warps": max(1, block // 256)}
        products.weight_of_lists[(classes + most, blocks)](
            self.lists, pieces, hidden, self.sums, more, constant, self.dense, classes, features,
            SIZE=_PIECE, AT_ONCE=_AT_ONCE, ROOM=self.room, **options,
        )  # fmt: skip
        if most:
            of = torch.searchsorted(ends - numbers[1 : classes + 1], numbers[:most], right=True)
            products.add_pieces[(most, blocks)](pieces, self.sums, more, of, classes, features, **options)


class _Supports:
    """How many nonzero errors some rows had in an earlier step: the device writes them here, and nobody waits."""

    def __init__(self, on_cuda: bool) -> None:
        self.counts = torch.zeros(_SAMPLE, dtype=torch.int32, device="cpu", pin_memory=on_cuda)

    def keep(self, counts: Tensor | None) -> None:
        """Copy the counts of some rows. A deterministic step depends on nothing but its inputs, so it waits here."""
        if counts is None or (counts.is_cuda and torch.cuda.is_current_stream_capturing()):
            return
        some = counts[:: math.ceil(len(counts) / _SAMPLE)].int()
        self.counts[: len(some)].copy_(some, non_blocking=not torch.are_deterministic_algorithms_enabled())

    def room(self, classes: int) -> int:
        """The room for the list of a row; 0 where dense products are faster, as far as is known."""
        counts = sorted(count for count in self.counts.tolist() if count)
        listed = counts[: math.ceil((1 - _DENSE) * len(counts))]
        if not listed or sum(listed) * _SHARE > classes * len(listed):
            return 0
        room = triton.next_power_of_2(math.ceil(2 * sum(listed) / len(listed)))
        room = min(_MOST_ROOM, max(_LEAST_ROOM, room))
        return room if sum(count > room for count in counts) <= _DENSE * len(counts) else 0


_known: Any = WeakTensorKeyDictionary()  # the `_Supports` of each weight


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


def _orders_for_kernels(orders: Orders) -> tuple[equation.Orders, int]:
    """The orders as kernels take them, and BETA."""
    numbers = [0.0 if isinstance(order, Tensor) else order for order in orders]
    places = [order if isinstance(order, Tensor) else None for order in orders]
    beta = 1 / (numbers[0] - 1) if numbers[0] > 1 else 0.0
    whole = round(beta) if beta < 5 else 0
    return equation.Orders(*numbers, *places, 0), whole if whole <= 4 and abs(beta - whole) < 1e-9 else 0


def _programs(values: Tensor, warps: int) -> int:
    """How many programs run at the same time, each of which takes one row after the other."""
    if not values.is_cuda:
        return 2
    return torch.cuda.get_device_properties(values.device).multi_processor_count * max(1, 32 // warps)
