"""An output layer and its Fenchel–Young loss in one, for large vocabularies: it never holds all logits in memory."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import compress
from typing import Any, Unpack

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, linear

from sharmix._arguments import HALF, Order, classes_last, may_read, one_value, widened
from sharmix._caller import current_caller
from sharmix._fenchel_young import Reduction, UnweightedLossOptions, check_options
from sharmix._operators.backend import backend
from sharmix._operators.orders import are_numbers, checked_orders
from sharmix._private_torch import is_plain_tensor, keeps_graph
from sharmix._targets import check_indices, checked_classes, nan_if_no_class
from sharmix.functional import Nonconcave, SharmaMittalRegulariser, fenchel_young_loss, orders_of

_CHUNK_BYTES = 1 << 26  # the size of a chunk of logits; matrix products are faster with more rows
_CHUNK_BYTES_ON_CUDA = 1 << 27  # where the host takes over a millisecond for each chunk
_BLOCKS = 16  # in a chunk; the loss is computed block by block, so that temporaries stay in the caches
_DENSE = 0.1  # the share of nonzero errors above which a matrix product is faster than a sum over the nonzero ones

# (logits [rows, classes], classes [rows], parameters) -> the sum of losses and its gradients by the parameters; the
# logits are overwritten by the gradient by them
_LossOfBlock = Callable[[Tensor, Tensor, Sequence[Tensor]], tuple[Tensor, Sequence[Tensor]]]
# (hidden, weight, bias, targets, which of the first three need gradients, parameters) -> the sum of losses, and its
# gradients by hidden, weight and bias, and by the parameters
_LossOfLayer = Callable[..., tuple[Tensor, Sequence[Tensor | None], Sequence[Tensor]]]


def linear_fenchel_young_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    q: Order = 1.25,
    r: Order = 1.5,
    temperature: Order = 1.0,
    *,
    nonconcave: Nonconcave = "global",
    **options: Unpack[UnweightedLossOptions],
) -> Tensor:
    """The Fenchel–Young loss of a linear output layer, computed a few rows at a time.

        L(z, y),      z = hidden · weightᵀ + bias

    The value and gradients are the same as for `fenchel_young_loss(linear(hidden, weight, bias), targets, ...)`, but it
    never holds all logits in memory. The error p − y is mostly 0, so the gradients use only its nonzero entries: on the
    CPU, and on CUDA by the kernels, if a step before had few of them. They are computed together with the value and
    kept for the backward pass, which cannot be differentiated again.

    Args:
        hidden: the input of the output layer, [..., features], floating point.
        weight, bias: the weights of the output layer, [classes, features], and its bias, [classes] or None.
        targets: class indices [...] of an integer type.
        q, r, temperature: numbers, or tensors of one element.
        nonconcave, **options: as for `fenchel_young_loss`, without `weight` and without the reduction `none`.

    Returns, Raises: as `fenchel_young_loss`; the loss is a scalar.

    Source: docs/math.md, section 5.

    Example:
        >>> hidden, weight = torch.ones(4, 2), torch.zeros(1000, 2, requires_grad=True)
        >>> sharmix.linear_fenchel_young_loss(hidden, weight, None, torch.zeros(4).long(), q=2.0, r=2.0)
        tensor(0.4995, grad_fn=<_LinearLossBackward>)
    """
    orders = orders_of(hidden, -1, one_value(q, "q"), one_value(r, "r"), one_value(temperature, "temperature"))
    q, r, temperature = orders
    loss = partial(fenchel_young_loss, q=q, r=r, temperature=temperature, nonconcave=nonconcave)
    learned = [order for order in orders if isinstance(order, Tensor)]
    is_softmax = not learned and orders == (1.0, 1.0, 1.0)
    regulariser = SharmaMittalRegulariser(*orders, nonconcave)
    return linear_loss(loss, learned, hidden, weight, bias, targets, is_softmax, regulariser, **options)


def linear_loss(
    loss: Callable[..., Tensor],
    parameters: Sequence[Tensor],
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    is_softmax: bool,
    regulariser: SharmaMittalRegulariser | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: Reduction = "mean",
    most_classes: int = 0,
) -> Tensor:
    """`linear_fenchel_young_loss` for any loss of logits [rows, classes], class indices [rows] and options.

    `parameters` are the tensors that the loss may depend on besides its arguments. `is_softmax` is True for the loss of
    softmax. `regulariser` is that of the loss, if it is SharMiX's. `most_classes` is the largest number of classes of a
    process, where processes share them and must divide the rows alike.
    """
    check_options(ignore_index, label_smoothing, reduction)
    ignore_index = int(ignore_index)
    loss = partial(loss, ignore_index=ignore_index, label_smoothing=label_smoothing)
    if reduction == "none":
        raise ValueError("reduction='none' is not allowed here: gradients are summed at once; use 'mean' or 'sum'")
    classes_last(hidden, "hidden", -1)
    check_layer(hidden, weight, bias, targets, fewest_classes=0 if most_classes else 1)
    if hidden.is_meta or not current_caller().is_plain:
        return loss(linear(hidden, weight, bias), targets, reduction=reduction)
    key = weight
    hidden, weight, bias = as_autocast(hidden, weight, bias)
    rows, classes = hidden.reshape(-1, hidden.shape[-1]), targets.reshape(-1).long()
    learned = [parameter for parameter in parameters if torch.is_grad_enabled() and parameter.requires_grad]
    layer = [part for part in (hidden, weight, bias) if part is not None]
    layer_learns = torch.is_grad_enabled() and any(part.requires_grad for part in layer)
    count = (classes != ignore_index).sum() if reduction == "mean" else classes.new_ones(())
    compute: _LossOfLayer
    entropy: Tensor | float = 0.0
    if is_softmax and not label_smoothing:
        compute = partial(_in_blocks, partial(_softmax_loss, ignore_index=ignore_index), most_classes)
    elif regulariser and _has_kernels(regulariser, rows, weight, classes):
        orders: Any = regulariser.orders
        is_learned = [isinstance(one, Tensor) and one.requires_grad and torch.is_grad_enabled() for one in orders]
        compute = partial(_by_kernels, orders, is_learned, ignore_index, label_smoothing, key)
        learned = [*compress(orders, is_learned), *learned]
        if label_smoothing:
            entropy = _smoothed_entropy(regulariser, weight, label_smoothing)
            entropy = entropy if reduction == "mean" else entropy * (classes != ignore_index).sum()
    else:
        loss_of_block = partial(_loss_by_autograd, partial(loss, reduction="sum"), layer_learns)
        compute = partial(_in_blocks, loss_of_block, most_classes)
    with torch.autocast(hidden.device.type, enabled=False):
        value = _LinearLoss.apply(compute, rows, weight, bias, classes, count, layer_learns, *learned)
    return value - entropy if isinstance(entropy, Tensor) else value


def _has_kernels(regulariser: SharmaMittalRegulariser, hidden: Tensor, weight: Tensor, targets: Tensor) -> bool:
    """Whether Triton's kernels compute the loss of the layer. They choose by no value of the device."""
    orders = regulariser.orders
    if backend(hidden.device) != "triton" or hidden.dtype not in (torch.float32, *HALF):
        return False
    if not all(is_plain_tensor(part) for part in (hidden, weight, targets)):
        return False
    if not are_numbers(orders):
        return regulariser.nonconcave == "global"
    from sharmix._operators.triton.solving import rows_in_need_of_float64  # which imports Triton

    return rows_in_need_of_float64(hidden, orders) == "none"


def _by_kernels(
    orders: Any,
    is_learned: Sequence[bool],
    ignore_index: int,
    smoothing: float,
    key: Tensor,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    wanted: Sequence[bool],
    parameters: Sequence[Tensor],
) -> tuple[Tensor, Sequence[Tensor | None], Sequence[Tensor]]:
    """SharMiX's loss on CUDA. The first parameters are the learned orders; by these the loss depends on all others."""
    from sharmix._operators.triton import layer  # which imports Triton

    values = checked_orders(weight.T, orders)
    if may_read(hidden):
        checked_classes(targets, len(weight), ignore_index)
    parts = logits_in_parts(hidden, weight, bias, widens=False)
    problem = layer.Layer(hidden, weight, targets, values, ignore_index, smoothing, wanted, True in is_learned)
    value, gradients, slopes = layer.layer_loss(parts, problem, key)
    by_orders = [] if slopes is None else list(compress(slopes, is_learned))
    by_parameters = [slope.to(order) for slope, order in zip(by_orders, parameters, strict=False)]
    return value, gradients, [*by_parameters, *map(torch.zeros_like, parameters[len(by_orders) :])]


def _smoothed_entropy(regulariser: SharmaMittalRegulariser, weight: Tensor, smoothing: float) -> Tensor:
    """The entropy of a smoothed target, which `layer_loss` leaves out: autograd knows its slopes."""
    smoothed = weight.new_full((len(weight),), smoothing / len(weight), dtype=torch.float32)
    smoothed[0] += 1 - smoothing
    return regulariser.entropy(smoothed)


def as_autocast(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """The tensors of an output layer, converted to autocast's dtype where autocast is enabled, but for float64."""
    kind = hidden.device.type
    if not torch.is_autocast_enabled(kind):
        return hidden, weight, bias
    half = torch.get_autocast_dtype(kind)
    hidden, weight = (one if one.dtype == torch.float64 else one.to(half) for one in (hidden, weight))
    return hidden, weight, bias if bias is None or bias.dtype == torch.float64 else bias.to(half)


@torch.no_grad()
def logits_in_parts(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, most_classes: int = 0, widens: bool = True
) -> Iterator[tuple[slice, Tensor]]:
    """For a few rows of hidden [rows, features] at a time: the slice of rows, and their logits; by default widened.

    Each part overwrites the one before. If each were allocated anew, the parts would fragment the C library's heap.
    """
    size = len(hidden) * max(len(weight), most_classes) * max(4 if widens else 1, hidden.element_size())
    parts = math.ceil(size / (_CHUNK_BYTES_ON_CUDA if hidden.is_cuda else _CHUNK_BYTES))
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


def check_layer(hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, fewest_classes: int = 1) -> None:
    if weight.dim() != 2 or weight.shape[1] != hidden.shape[-1] or len(weight) < fewest_classes:
        shapes = f"weight of shape {tuple(weight.shape)} does not go with hidden of shape {tuple(hidden.shape)}"
        at_least = " with at least 1 class" if fewest_classes else ""
        raise ValueError(f"{shapes}; it must be [classes, {hidden.shape[-1]}]{at_least}")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias of shape {tuple(bias.shape)} must be of shape {tuple(weight.shape[:1])}")
    check_indices(hidden, targets, "hidden")


def _loss_by_autograd(
    loss: Callable[[Tensor, Tensor], Tensor],
    layer_learns: bool,
    logits: Tensor,
    classes: Tensor,
    parameters: Sequence[Tensor],
) -> tuple[Tensor, Sequence[Tensor]]:
    """The sum of any loss and its gradients by parameters; the gradient by the logits overwrites the logits."""
    leaf = logits.detach().requires_grad_(layer_learns)
    with torch.set_grad_enabled(layer_learns or bool(parameters)):
        value = loss(leaf, classes)
    if not value.requires_grad:
        return value, [torch.zeros_like(parameter) for parameter in parameters]
    inputs = [*parameters, *[leaf] * layer_learns]
    slopes = list(torch.autograd.grad(value, inputs, allow_unused=True, materialize_grads=True))
    if layer_learns:
        logits.copy_(slopes.pop())
    return value.detach(), slopes


def _softmax_loss(
    logits: Tensor, classes: Tensor, parameters: Sequence[Tensor], ignore_index: int
) -> tuple[Tensor, Sequence[Tensor]]:
    """`_loss_by_autograd` for cross-entropy, which has no parameters: one softmax gives loss and gradient."""
    counted = classes != ignore_index
    indices = checked_classes(classes, logits.shape[-1], ignore_index).unsqueeze(-1)
    above_own = logits.amax(-1) - logits.gather(-1, indices).squeeze(-1)
    p = nan_if_no_class(logits.softmax(-1), classes, logits.shape[-1], ignore_index)
    value = torch.where(counted, above_own - p.amax(-1).log(), 0).sum()
    p.scatter_add_(-1, indices, -torch.ones_like(p[:, :1]))
    logits.copy_(p)
    logits[~counted] = 0
    return value, []


def _in_blocks(
    loss: _LossOfBlock,
    most_classes: int,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    wanted: Sequence[bool],
    parameters: Sequence[Tensor],
) -> tuple[Tensor, Sequence[Tensor | None], Sequence[Tensor]]:
    """Any loss, block by block."""
    gradients = _LayerGradients(hidden, weight, bias, wanted) if any(wanted) else None
    value = torch.zeros((), dtype=torch.promote_types(hidden.dtype, torch.float32), device=hidden.device)
    by_parameters = [torch.zeros_like(parameter) for parameter in parameters]
    for some, logits in logits_in_parts(hidden, weight, bias, most_classes):
        few = math.ceil(len(logits) / (1 if logits.is_cuda else _BLOCKS))
        for block, classes in zip(torch.split(logits, few), torch.split(targets[some], few), strict=True):
            part, slopes = loss(block, classes, parameters)
            value = value + part
            by_parameters = [so_far + slope for so_far, slope in zip(by_parameters, slopes, strict=True)]
        if gradients is not None:
            gradients.add(some, logits)
    return value, (None, None, None) if gradients is None else gradients.collected(), by_parameters


class _LinearLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        compute: _LossOfLayer,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        count: Tensor,
        layer_learns: bool,
        *parameters: Tensor,
    ) -> Tensor:
        wanted = ctx.needs_input_grad[1:4] if layer_learns else (False, False, False)
        value, layer, by_parameters = compute(hidden, weight, bias, targets, wanted, parameters)
        ctx.dtypes = (hidden.dtype, weight.dtype, weight.dtype)
        ctx.save_for_backward(count, *layer, *by_parameters)
        return value / count

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError("the gradients of a linear loss cannot be differentiated again; use the loss of logits")
        count, *gradients = ctx.saved_tensors
        grad = grad / count.clamp_min(1)  # the gradients over no rows are 0
        by_layer = [
            _times(part, grad).to(dtype) if want and part is not None else None
            for part, dtype, want in zip(gradients[:3], ctx.dtypes, ctx.needs_input_grad[1:4], strict=True)
        ]
        by_parameters = [(part * grad).to(part.dtype) for part in gradients[3:]]
        return None, *by_layer, *[None] * 3, *by_parameters


def _times(gradient: Tensor, factor: Tensor) -> Tensor:
    """gradient · factor, in place if no other backward pass needs the gradient, which is as large as the layer."""
    if not keeps_graph():
        with suppress(RuntimeError):  # a batch of factors, under torch.autograd.grad(is_grads_batched=True)
            return gradient.mul_(factor)
    return gradient * factor


class _LayerGradients:
    """The wanted gradients by hidden, weight and bias, float32 or wider, summed over chunks of the errors p − y."""

    def __init__(self, hidden: Tensor, weight: Tensor, bias: Tensor | None, wanted: Sequence[bool]) -> None:
        self.hidden, self.weight = hidden, weight
        self.wide = torch.promote_types(weight.dtype, torch.float32)
        wants_hidden, self.wants_weight, wants_bias = wanted
        self.by_hidden = torch.empty_like(hidden, dtype=self.wide) if wants_hidden else None
        self.by_bias = torch.zeros_like(bias, dtype=self.wide) if bias is not None and wants_bias else None
        self.by_weight: Tensor | None = None  # summed over the dense chunks
        self.rows, self.classes, self.errors = ([torch.empty_like(hidden[:0, 0], dtype=torch.long)] for _ in range(3))

    def add(self, some: slice, error: Tensor) -> None:
        """Add the errors [rows, classes] of the rows `some`."""
        if self.by_bias is not None:
            self.by_bias += error.sum(0)
        if self.by_hidden is None and not self.wants_weight:
            return
        error = error.to(self.weight.dtype)
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
        errors = error[rows, classes]
        if self.by_hidden is not None:
            self.by_hidden[some] = _grouped_sums(self.weight, classes, errors, rows, len(error))
        if self.wants_weight:
            self.rows.append(rows + some.start)
            self.classes.append(classes)
            self.errors.append(errors)

    def collected(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        if not self.wants_weight or (self.by_weight is not None and len(self.rows) == 1):  # no chunk was sparse
            return self.by_hidden, self.by_weight, self.by_bias
        classes, order = torch.cat(self.classes).sort()
        rows, errors = torch.cat(self.rows)[order], torch.cat(self.errors)[order].to(self.weight.dtype)
        by_weight = _grouped_sums(self.hidden, rows, errors, classes, len(self.weight)).to(self.wide)
        return self.by_hidden, by_weight if self.by_weight is None else by_weight.add_(self.by_weight), self.by_bias


def _grouped_sums(table: Tensor, index: Tensor, factor: Tensor, group: Tensor, groups: int) -> Tensor:
    """Σ factor · table[index] over each group, [groups, features]; `group` is sorted."""
    starts = torch.searchsorted(group, torch.arange(groups, device=group.device))
    return embedding_bag(index, table, starts, mode="sum", per_sample_weights=factor)
