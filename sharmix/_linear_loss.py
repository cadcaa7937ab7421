"""An output layer and its Fenchel–Young loss in one, for large vocabularies: it never holds all logits in memory."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import compress
from typing import Any, Unpack

import torch
from torch import Tensor
from torch.nn.functional import linear

from sharmix._arguments import HALF, Order, as_autocast, classes_last, may_read, one_value
from sharmix._caller import current_caller
from sharmix._fenchel_young import LinearLossOptions, Reduction, checked_options
from sharmix._layer_in_blocks import (
    LayerLoss,
    OutputLayer,
    logits_in_parts,
    loss_by_autograd,
    loss_in_blocks,
    softmax_loss,
)
from sharmix._layer_screened import screened_loss, screening_may_pay
from sharmix._operators.backend import backend
from sharmix._operators.orders import Orders, are_numbers, checked_orders, largest
from sharmix._private_torch import is_plain_tensor, keeps_graph
from sharmix._targets import check_indices, checked_classes
from sharmix.functional import Nonconcave, SharmaMittalRegulariser, fenchel_young_loss, orders_of

# (layer, which gradients are wanted by hidden, weight and bias, parameters) -> the sum of losses and its gradients
_LossOfLayer = Callable[[OutputLayer, Sequence[bool], Sequence[Tensor]], LayerLoss]


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
    **options: Unpack[LinearLossOptions],
) -> Tensor:
    """The Fenchel–Young loss of a linear output layer, computed a few rows at a time.

        L(z, y),      z = hidden · weightᵀ + bias

    The value and gradients are the same as for `fenchel_young_loss(linear(hidden, weight, bias), targets, ...)`, but it
    never holds all logits in memory. The error p − y is mostly 0, so the gradients use only its nonzero entries: on the
    CPU, and on CUDA where an earlier step had few of them. They are computed together with the value and
    kept for the backward pass, which cannot be differentiated again.

    A processor with instructions for bfloat16 screens a large float32 layer: a product in bfloat16 shows which classes
    can be in the support, and where these are few, only their logits are computed (docs/math.md, section 9).

    Args:
        hidden: the input of the output layer, [..., features], floating point.
        weight, bias: the weights of the output layer, [classes, features], and its bias, [classes] or None.
        targets: class indices [...] of an integer type.
        q, r, temperature: numbers, or tensors of one element.
        nonconcave: as for `fenchel_young_loss`.
        **options: `ignore_index`, `reduction`, `label_smoothing` and `sparse_grad`; see `LinearLossOptions`.

    Returns, Raises: as `fenchel_young_loss`; the loss is a scalar.

    Source: docs/math.md, sections 5 and 9.

    Example:
        >>> hidden, weight = torch.ones(4, 2), torch.zeros(1000, 2, requires_grad=True)
        >>> targets = torch.zeros(4).long()
        >>> sharmix.linear_fenchel_young_loss(hidden, weight, None, targets, q=2.0, r=2.0)
        tensor(0.4995, grad_fn=<_LinearLossBackward>)
    """
    orders = orders_of(hidden, -1, one_value(q, "q"), one_value(r, "r"), one_value(temperature, "temperature"))
    q, r, temperature = orders
    loss = partial(fenchel_young_loss, q=q, r=r, temperature=temperature, nonconcave=nonconcave)
    learned = [order for order in orders if isinstance(order, Tensor)]
    regulariser = SharmaMittalRegulariser(*orders, nonconcave)
    return linear_loss(loss, learned, hidden, weight, bias, targets, regulariser, **options)


def linear_loss(
    loss: Callable[..., Tensor],
    parameters: Sequence[Tensor],
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    regulariser: SharmaMittalRegulariser | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: Reduction = "mean",
    sparse_grad: bool = False,
    most_classes: int = 0,
) -> Tensor:
    """`linear_fenchel_young_loss` for any loss of logits [rows, classes], class indices [rows] and options.

    `parameters` are the tensors that the loss may depend on besides its arguments. `regulariser` is that of
    the loss, if it is one of SharMiX's. `most_classes` is the largest number of classes of a process, where processes
    share them and must divide the rows alike.
    """
    ignore_index = checked_options(ignore_index, label_smoothing, reduction)
    loss = partial(loss, ignore_index=ignore_index, label_smoothing=label_smoothing)
    if reduction == "none":
        raise ValueError("reduction='none' is not allowed here: gradients are summed at once; use 'mean' or 'sum'")
    classes_last(hidden, "hidden", -1)
    check_layer(hidden, weight, bias, targets, fewest_classes=0 if most_classes else 1)
    if hidden.is_meta or not current_caller().is_plain:
        return loss(linear(hidden, weight, bias), targets, reduction=reduction)
    hidden, classes = hidden.reshape(-1, hidden.shape[-1]), targets.reshape(-1).long()
    rows, own_weight, own_bias = as_autocast(hidden, weight, bias)
    layer = OutputLayer(rows, own_weight, own_bias, classes)
    counted = (classes != ignore_index).sum()
    compute: _LossOfLayer
    entropy: Tensor | float = 0.0
    is_softmax = regulariser and are_numbers(regulariser.orders) and regulariser.orders == (1.0, 1.0, 1.0)
    if regulariser and (values := _orders_for_kernels(layer, regulariser)):
        orders = regulariser.orders
        parameters = [*(order for order in orders if isinstance(order, Tensor)), *parameters]
        compute = partial(_loss_by_kernels, orders, values, ignore_index, label_smoothing, weight)
        if label_smoothing:
            entropy = _smoothed_entropy(regulariser, weight, label_smoothing)
            entropy = entropy * (counted.clamp_max(1) if reduction == "mean" else counted)
    elif regulariser and not label_smoothing and not most_classes and (values := _for_screening(layer, regulariser)):
        in_blocks = partial(loss_by_autograd, partial(loss, ignore_index=-100, reduction="sum"))  # of rows that count
        compute = partial(screened_loss, in_blocks, values, ignore_index, sparse_grad)
    elif is_softmax and not label_smoothing:
        in_blocks = partial(softmax_loss, ignore_index=ignore_index)
        compute = partial(loss_in_blocks, in_blocks, most_classes, sparse_grad)
    else:
        in_blocks = partial(loss_by_autograd, partial(loss, reduction="sum"))
        compute = partial(loss_in_blocks, in_blocks, most_classes, sparse_grad)
    count, learns = counted if reduction == "mean" else torch.ones_like(counted), torch.is_grad_enabled()
    learned = [parameter for parameter in parameters if learns and parameter.requires_grad]
    with torch.autocast(hidden.device.type, enabled=False):
        value = _LinearLoss.apply(partial(compute, layer), count, learns, sparse_grad, hidden, weight, bias, *learned)
    return value - entropy if isinstance(entropy, Tensor) else value


def _orders_for_kernels(layer: OutputLayer, regulariser: SharmaMittalRegulariser) -> Orders | None:
    """The checked orders, if Triton's kernels compute the loss of the layer. No value of the device decides that."""
    hidden = layer.hidden
    if backend(hidden.device) != "triton" or hidden.dtype not in (torch.float32, *HALF):
        return None
    if not all(is_plain_tensor(part) for part in (hidden, layer.weight, layer.targets)):
        return None
    from sharmix._operators.triton.solving import rows_in_need_of_float64  # which imports Triton

    values = checked_orders(layer.weight.T, regulariser.orders, regulariser.nonconcave)
    return None if rows_in_need_of_float64(hidden, values) == "all" else values


def _for_screening(layer: OutputLayer, regulariser: SharmaMittalRegulariser) -> Orders | None:
    """The checked orders, if the layer is screened."""
    if not screening_may_pay(layer):
        return None
    orders = checked_orders(layer.weight.T, regulariser.orders, regulariser.nonconcave)
    return orders if 1 < largest(orders[0]) <= 2 else None


def _loss_by_kernels(
    orders: Any,
    values: Orders,
    ignore_index: int,
    smoothing: float,
    known_by: Tensor,
    layer: OutputLayer,
    wanted: Sequence[bool],
    parameters: Sequence[Tensor],
) -> LayerLoss:
    """SharMiX's loss on CUDA, but for the entropy of smoothed targets; `values` are the checked orders.

    The first parameters are the learned orders. By these the loss depends on the others, whose gradient here is 0.
    """
    from sharmix._operators.triton.layer import Layer, layer_loss  # which import Triton

    hidden, weight, bias, targets = layer
    if may_read(hidden):
        checked_classes(targets, len(weight), ignore_index)
    parts = logits_in_parts(hidden, weight, bias, widens=False)
    is_learned = [any(order is one for one in parameters) for order in orders]
    problem = Layer(hidden, weight, targets, values, ignore_index, smoothing, wanted, True in is_learned)
    value, gradients, slopes = layer_loss(parts, problem, known_by)
    by_parameters = [torch.zeros_like(parameter) for parameter in parameters]
    if slopes is not None:
        by_parameters[: sum(is_learned)] = [slope.to(parameters[0]) for slope in compress(slopes, is_learned)]
    return value, gradients, by_parameters


def _smoothed_entropy(regulariser: SharmaMittalRegulariser, weight: Tensor, smoothing: float) -> Tensor:
    """The entropy of a smoothed target, of which autograd knows the slopes."""
    smoothed = weight.new_full((len(weight),), smoothing / len(weight), dtype=torch.float32)
    smoothed[0] += 1 - smoothing
    return regulariser.entropy(smoothed)


def check_layer(hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, fewest_classes: int = 1) -> None:
    if weight.dim() != 2 or weight.shape[1] != hidden.shape[-1] or len(weight) < fewest_classes:
        shapes = f"weight of shape {tuple(weight.shape)} does not go with hidden of shape {tuple(hidden.shape)}"
        at_least = " with at least 1 class" if fewest_classes else ""
        raise ValueError(f"{shapes}; it must be [classes, {hidden.shape[-1]}]{at_least}")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias of shape {tuple(bias.shape)} must be of shape {tuple(weight.shape[:1])}")
    check_indices(hidden, targets, "hidden")


class _LinearLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        compute: Callable[[Sequence[bool], Sequence[Tensor]], LayerLoss],
        count: Tensor,
        learns: bool,
        sparse_grad: bool,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        *parameters: Tensor,
    ) -> Tensor:
        wanted = ctx.needs_input_grad[4:7] if learns else (False, False, False)
        value, (by_hidden, by_weight, by_bias), by_parameters = compute(wanted, parameters)
        if sparse_grad and by_weight is not None and not by_weight.is_sparse:
            by_weight = by_weight.to_sparse(1)
        ctx.dtypes = (hidden.dtype, weight.dtype, weight.dtype if bias is None else bias.dtype)
        ctx.save_for_backward(count, by_hidden, by_weight, by_bias, *by_parameters)
        return value / count

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError("the gradients of a linear loss cannot be differentiated again; use the loss of logits")
        count, *gradients = ctx.saved_tensors
        grad = grad / count.clamp_min(1)  # the gradients over no rows are 0
        by_layer = [
            _times(part, grad, dtype) if want and part is not None else None
            for part, dtype, want in zip(gradients[:3], ctx.dtypes, ctx.needs_input_grad[4:7], strict=True)
        ]
        by_parameters = [part * grad for part in gradients[3:]]
        return *[None] * 4, *by_layer, *by_parameters


def _times(gradient: Tensor, factor: Tensor, dtype: torch.dtype) -> Tensor:
    """gradient · factor in a dtype, which reads the gradient once: it is as large as the layer.

    In place, if the dtype is the same and no other backward pass needs the gradient.
    """
    with suppress(RuntimeError):  # a batch of factors, under torch.autograd.grad(is_grads_batched=True)
        if gradient.dtype != dtype and not gradient.is_sparse:
            return torch.mul(gradient, factor, out=torch.empty_like(gradient, dtype=dtype))
        if not keeps_graph():
            return gradient.mul_(factor).to(dtype)
    return (gradient * factor).to(dtype)
