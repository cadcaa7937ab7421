"""The derivatives of map and losses with respect to logits, q, r, T₀ and τ, for torch's autograd."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from sharmix._arguments import Order, checked_memory
from sharmix._caller import Caller, current_caller
from sharmix._mathematics.sensitivity import ConjugateSensitivity, MapSensitivity
from sharmix._operators import backend, register
from sharmix._private_torch import forward_mode_active, forward_mode_depth, vmap_active

Orders = tuple[Order, Order, Order]  # q, r and T₀: numbers, or tensors of one element or broadcasting to [..., 1]
LossOrders = Orders | tuple[Order, None, Order]  # α-ReLU has α, None and τ
Gradients = list[Tensor | None]


def solved(logits: Tensor, orders: Orders, nonconcave: str, caller: Caller, wants_conjugate: bool = False) -> Any:
    """p* of logits [..., classes], differentiable to any order, and its conjugate [...] if it is wanted.

    The conjugate is max_p p·x + (T₀/q) H_{q,r}(p) for logits x minus the largest of their row. Only p* is kept for the
    backward pass.
    """
    if caller.is_compiled and caller.has_tangents:
        raise NotImplementedError("torch.compile drops forward-mode tangents here; compile a derivative in reverse")
    if caller.needs_operators and (vmap_active() or not caller.is_transformed):
        return _Map.computed(logits, *orders, nonconcave, wants_conjugate)
    if caller.is_compiled:  # which allows no tensor as two arguments, but α-entmax has q = r
        orders = tuple(order.clone() if isinstance(order, Tensor) else order for order in orders)  # type: ignore[assignment]
    function = _ForwardMap if caller.has_tangents else _TransformedMap if caller.is_transformed else _Map
    return function.apply(logits, *orders, nonconcave, wants_conjugate)


def class_loss(
    logits: Tensor,
    targets: Tensor,
    orders: LossOrders,
    ignore_index: int,
    reduction: str,
    caller: Caller,
    nonconcave: str = "global",
) -> Tensor:
    """L(z, y) = Ω*(z) − z_y against class indices, int64 [...]; value and gradient need one pass over the logits each.

    Nothing as large as the logits is kept for the backward pass but the logits themselves: a row's distribution is
    known from its root, four numbers.
    """
    inputs = logits, targets, *orders, nonconcave, ignore_index, reduction
    if caller.needs_operators:
        learned = any(isinstance(order, Tensor) and order.requires_grad for order in orders)
        return register.class_loss(*inputs, learned)[0]
    return _ClassLoss.apply(*inputs)


def _differentiated_again() -> bool:
    """Whether the result of a backward pass may be differentiated again, in reverse or in forward mode."""
    return torch.is_grad_enabled() or forward_mode_active()


def _save(ctx: Any, tensors: Sequence[Tensor], orders: Sequence[Order | None], forward: bool = False) -> None:
    """Keep tensors, orders and the choice of plain torch for forward mode, or for the backward pass.

    CUDA runs the backward pass in another thread, where plain torch is not chosen.
    """
    ctx.is_plain_torch = backend.is_plain_torch()
    ctx.orders = [Tensor if isinstance(order, Tensor) else order for order in orders]
    (ctx.save_for_forward if forward else ctx.save_for_backward)(
        *tensors, *[order for order in orders if isinstance(order, Tensor)]
    )


def _saved(ctx: Any) -> tuple[Sequence[Tensor], Any]:
    """The saved tensors, and the orders as the caller gave them."""
    tensors, orders = ctx.saved_tensors, ctx.orders
    if Tensor not in orders:
        return tensors, orders
    tensors = list(tensors)
    given = [tensors.pop() if order is Tensor else order for order in reversed(orders)]
    return tensors, given[::-1]


class _Map(torch.autograd.Function):
    @staticmethod
    def computed(*inputs: Any) -> Any:
        """p*, and the conjugate if the last input is True."""
        outputs = register.solve(*inputs)
        return outputs if inputs[-1] else outputs[0]

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Any:
        output = _Map.computed(*inputs)
        _Map.keep(ctx, inputs, output)
        return output

    @staticmethod
    def keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _save(ctx, (output[0] if isinstance(output, tuple) else output,), inputs[1:4])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, grad_p: Tensor | None, grad_conjugate: Tensor | None = None) -> tuple[Tensor | None, ...]:
        (p,), orders = _saved(ctx)
        gradients: Gradients = [None] * 4
        if grad_p is not None:
            with backend.use_plain_torch(ctx.is_plain_torch):
                gradients = through_map(grad_p, p, orders, ctx.needs_input_grad[1:4])
        if grad_conjugate is not None:
            others: Any = _through_conjugate(grad_conjugate, p, orders, ctx.needs_input_grad[1:4])
            gradients = [other if one is None else one + other for one, other in zip(gradients, others, strict=True)]
        return *gradients, None, None


# For the operator in an exported program or a trace, which calls it without the function above.
torch.library.register_autograd("sharmix::solve", _Map.backward, setup_context=_Map.keep)


class _TransformedMap(_Map):
    """The function with the rules for transforms, also in compiled code; the rules slow down small batches."""

    generate_vmap_rule = True
    forward = staticmethod(_Map.computed)  # type: ignore[assignment]
    setup_context = staticmethod(_Map.keep)


class _ForwardMap(_TransformedMap):
    """The function with a rule for forward mode, which torch.compile does not support."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _Map.keep(ctx, inputs, output)
        _save(ctx, (output[0] if inputs[-1] else output,), inputs[1:4], forward=True)
        ctx.wants_conjugate = inputs[-1]

    @staticmethod
    def jvp(ctx: Any, x: Tensor | None, *tangents: Tensor | None) -> Any:
        if forward_mode_depth() > 1:
            message = "forward mode within forward mode is not supported: torch drops the outer tangent of a function"
            raise NotImplementedError(f"{message}; take one derivative in reverse, as in jacfwd(jacrev(f))")
        (p,), orders = _saved(ctx)
        at, dtype = MapSensitivity(p, *orders), p.dtype
        p, conjugate = torch.zeros_like(at.p), torch.zeros_like(at.p[..., :1])
        if x is not None:
            p, conjugate = at.logit_product(x), (at.p * x).sum(-1, keepdim=True)
        slopes = (
            (at.wrt_q, at.conjugate_wrt_q),
            (at.wrt_r, at.conjugate_wrt_r),
            (at.wrt_temperature, at.conjugate_wrt_temperature),
        )
        for tangent, (slope, conjugate_slope) in zip(tangents, slopes, strict=False):  # the last inputs are no tensors
            if tangent is not None:
                tangent = tangent.to(at.p.dtype)
                p, conjugate = p + slope() * tangent, conjugate + conjugate_slope() * tangent
        return (p.to(dtype), conjugate.squeeze(-1)) if ctx.wants_conjugate else p.to(dtype)


def through_map(grad: Tensor, p: Tensor, orders: Sequence[Order], wanted: Sequence[bool]) -> Gradients:
    """The gradients by logits, q, r and T₀ from the gradient by p; `wanted` tells which of q, r and T₀ need one."""
    checked_memory(grad)
    if not _differentiated_again():
        by_logits, along = register.map_backward(p, grad, *orders, any(wanted))
        return [by_logits, *_by_order(along, orders, wanted)]
    at, grad = MapSensitivity(p, *orders), torch.where(p > 0, grad, 0)  # as `any_device.map_backward`
    return [at.logit_product(grad), *_summed(grad, (at.wrt_q, at.wrt_r, at.wrt_temperature), orders, wanted)]


def _through_conjugate(grad: Tensor, p: Tensor, orders: Sequence[Order], wanted: Sequence[bool]) -> Gradients:
    grad = grad.unsqueeze(-1)
    if not any(wanted):
        return [grad * p, None, None, None]
    at = ConjugateSensitivity(p, *orders)
    slopes = at.conjugate_wrt_q, at.conjugate_wrt_r, at.conjugate_wrt_temperature
    return [grad * p, *_summed(grad, slopes, orders, wanted)]


def _summed(
    grad: Tensor, slopes: Sequence[Callable[[], Tensor]], orders: Sequence[Order], wanted: Sequence[bool]
) -> Gradients:
    """Σ grad · slope by each wanted order, summed to the shape of the order."""
    return [
        _like((grad * slope()).sum(-1, keepdim=True), order) if want else None
        for slope, order, want in zip(slopes, orders, wanted, strict=True)
    ]


def _by_order(along: Tensor, orders: Sequence[Order | None], wanted: Sequence[bool]) -> Gradients:
    """The gradients of each row [..., 3], summed to the shapes of their orders."""
    if not any(wanted):
        return [None] * 3
    rows = along.unsqueeze(-2).unbind(-1)
    return [_like(row, order) if want else None for row, order, want in zip(rows, orders, wanted, strict=True)]


def _like(gradient: Tensor, order: Order | None) -> Tensor | None:
    return gradient.sum_to_size(order.shape) if isinstance(order, Tensor) else None


class _ClassLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        is_alpha_relu = inputs[3] is None
        output = register.class_loss(*inputs, not is_alpha_relu and any(ctx.needs_input_grad[2:5]))
        _ClassLoss.keep(ctx, inputs, output)
        return output[0]

    @staticmethod
    def keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        logits, targets, q, r, temperature, ctx.nonconcave, ctx.ignore_index, *_ = inputs
        _save(ctx, (logits, targets, *output[1:]), (q, r, temperature))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (logits, targets, states, slopes, divisor), orders = _saved(ctx)
        grad, wanted = checked_memory(grad) / divisor.clamp_min(1), ctx.needs_input_grad[2:5]
        with backend.use_plain_torch(ctx.is_plain_torch):
            if _differentiated_again():
                settings = targets, orders, ctx.ignore_index, ctx.nonconcave
                by_logits, *by_orders = through_class_loss(grad, logits, *settings, wanted)
            else:
                by_logits = None
                if ctx.needs_input_grad[0] or orders[1] is None:  # the gradient by τ needs it
                    by_logits = register.class_loss_backward(logits, targets, states, grad, *orders, ctx.ignore_index)
                by_orders = _class_loss_by_orders(by_logits, grad, slopes, orders, wanted)
        return by_logits, None, *by_orders, None, None, None


torch.library.register_autograd(
    "sharmix::class_loss",
    lambda ctx, grad, *_: (*_ClassLoss.backward(ctx, grad), None),
    setup_context=_ClassLoss.keep,
)


def through_class_loss(
    grad: Tensor,
    logits: Tensor,
    targets: Tensor,
    orders: LossOrders,
    ignore_index: int,
    nonconcave: str,
    wanted: Sequence[bool],
) -> Gradients:
    """The gradients by logits, q, r and T₀, differentiable again; `grad` is for each row's loss, or for all rows."""
    q, r, temperature = orders
    counted = (targets != ignore_index).unsqueeze(-1)
    finite = torch.where(counted, logits, 0)
    if r is None:
        p, slopes = alpha_relu_weights(finite, q, temperature), None
    else:
        p = solved(finite, (q, r, temperature), nonconcave, current_caller())
        slopes = ConjugateSensitivity(p, q, r, temperature).conjugate_slopes() * counted
    classes = torch.where(counted, targets.unsqueeze(-1), 0)
    error = p.scatter_add(-1, classes, -torch.ones_like(p[..., :1])) * counted  # p − y
    by_logits = grad.unsqueeze(-1) * error
    return [by_logits, *_class_loss_by_orders(by_logits, grad, slopes, orders, wanted)]


def _class_loss_by_orders(
    by_logits: Any, grad: Tensor, slopes: Tensor | None, orders: LossOrders, wanted: Sequence[bool]
) -> Gradients:
    if not any(wanted):
        return [None] * 3
    alpha, r, _ = orders
    if r is None or slopes is None:  # for α-ReLU, −Σ (p − y)/(α − 1) by τ
        return [None, None, by_logits.sum() / (1 - alpha) if wanted[2] else None]
    return _by_order(grad.unsqueeze(-1) * slopes, orders, wanted)


def alpha_relu_weights(logits: Tensor, alpha: Order, tau: Order) -> Tensor:
    """[(α − 1) z − τ]₊^{1/(α−1)}, by operations that torch differentiates itself."""
    return power((alpha - 1) * logits - tau, 1 / (alpha - 1))


def power(base: Tensor, exponent: Order) -> Tensor:
    """[base]₊^exponent, with slope 0 wherever it is 0 and NaN kept."""
    outside = base <= 0
    return torch.where(outside, 0, torch.where(outside, 1, base) ** exponent)
