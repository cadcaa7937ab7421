"""The autograd nodes of the map and of its loss against class indices, and the way of each caller to them.

The node of a plain caller calls an implementation itself: torch's dispatcher, and its rules for transforms, take longer
than a small batch. Callers that torch compiles, traces or transforms use the torch operators, which call the same
implementations.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from sharmix._arguments import Order, checked_memory, is_read
from sharmix._caller import Caller, current_caller, is_last_derivative
from sharmix._mathematics.sensitivity import ConjugateSensitivity, MapSensitivity
from sharmix._operators import any_device, backend, torch_operators
from sharmix._operators.orders import Slopes, are_numbers, checked_orders, hold_one_value
from sharmix._operators.torch_operators import joined, separated
from sharmix._private_torch import forward_mode_active, forward_mode_depth, is_plain_tensor, vmap_active
from sharmix._targets import counted_rows

Orders = tuple[Order, Order, Order]  # q, r and T₀: numbers, or tensors of one element or broadcasting to [..., 1]
Gradients = list[Tensor | None]
_TYPES_OF_ORDERS = frozenset((float, Tensor, torch.nn.Parameter))  # of plain callers: no subclass of a tensor


def solved(logits: Tensor, orders: Orders, nonconcave: str, caller: Caller, wants_conjugate: bool = False) -> Any:
    """p* of logits [..., classes], differentiable to any order, and its conjugate [...] if it is wanted.

    The conjugate is max_p p·x + (T₀/q) H_{q,r}(p) for logits x minus the largest of their row. For the
    backward pass p* is kept, and on CUDA the places of up to 512 classes of the support of each long row.
    """
    if goes_directly(caller, logits, orders):
        return Map.apply(logits, (orders, nonconcave, wants_conjugate), *_tensors(orders, logits))
    if caller.is_compiled and caller.has_tangents:
        raise NotImplementedError("torch.compile drops forward-mode tangents here; compile a derivative in reverse")
    if caller.is_compiled and caller.is_transformed and not vmap_active():
        # The compiler allows no tensor as two arguments, but α-entmax has q = r.
        orders = tuple(order.clone() if isinstance(order, Tensor) else order for order in orders)  # type: ignore[assignment]
    inputs = logits, *separated(orders), nonconcave, wants_conjugate
    if caller.has_tangents:
        return _ForwardMap.apply(*inputs)
    if caller.is_transformed and not (caller.needs_operators and vmap_active()):
        return _TransformedMap.apply(*inputs)
    return _TransformedMap.forward(*inputs)


def class_loss(
    logits: Tensor,
    targets: Tensor,
    orders: Orders,
    ignore_index: int,
    reduction: str,
    caller: Caller,
    nonconcave: str = "global",
) -> Tensor:
    """L(z, y) = Ω*(z) − z_y against class indices, int64 [...].

    For the backward pass a node keeps the logits and four numbers of each row, from which its distribution is known.
    The mean or sum of a small batch, or on CUDA of any batch, keeps the gradient instead, computed with the value.
    """
    if goes_directly(caller, logits, orders) and is_plain_tensor(targets):
        return ClassLoss.apply(
            logits, targets, (orders, nonconcave, ignore_index, reduction), *_tensors(orders, logits)
        )
    learned = any(isinstance(order, Tensor) and order.requires_grad for order in orders)
    inputs = logits, targets, *separated(orders), nonconcave, ignore_index, reduction, learned
    return torch_operators.class_loss(*inputs)[0]


def goes_directly(caller: Caller, logits: Tensor, orders: Sequence[Order]) -> bool:
    """Whether a node may call an implementation: no compiler, trace, transform or mode has to see operators."""
    return caller.is_plain and is_plain_tensor(logits) and _TYPES_OF_ORDERS.issuperset(map(type, orders))


class Map(torch.autograd.Function):
    """p*, and its conjugate if it is wanted, for plain callers; q, r and T₀ follow if one of them is a tensor."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, settings: tuple[Orders, str, bool], *tensors: Tensor | None) -> Any:
        orders, nonconcave, wants_conjugate = settings
        values = checked_orders(logits, orders, nonconcave)
        implementation = backend.select_implementation(logits, values)
        p, conjugate, kept = implementation.solve(logits, values, wants_conjugate, True in ctx.needs_input_grad)
        ctx.solved_by = implementation, values, len(kept)
        ctx.save_for_backward(p, *kept, *tensors)
        if not wants_conjugate:
            return p
        ctx.set_materialize_grads(False)
        return p, conjugate

    @staticmethod
    def backward(ctx: Any, grad_p: Tensor | None, grad_conjugate: Tensor | None = None) -> tuple[Tensor | None, ...]:
        p, *others = ctx.saved_tensors
        implementation, values, count = ctx.solved_by
        kept, tensors = others[:count], others[count:]
        wanted = ctx.needs_input_grad[2:]
        if grad_p is None or grad_conjugate is not None or not is_last_derivative(grad_p):
            with backend.use_plain_torch(implementation is any_device):
                gradients = _through_outputs(grad_p, grad_conjugate, p, _given(values, tensors), wanted)
            return gradients[0], None, *gradients[1 : 1 + len(wanted)]
        by_logits, slopes = implementation.map_backward(p, grad_p, values, _kind_of_slopes(wanted, values, p), kept)
        return by_logits, None, *_wanted_slopes(slopes, wanted)


class ClassLoss(torch.autograd.Function):
    """L(z, y) for plain callers; q, r and T₀ follow if one of them is a tensor."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, settings: tuple[Orders, str, int, str], *tensors: Tensor | None
    ) -> Tensor:
        orders, nonconcave, ignore_index, reduction = settings
        values = checked_orders(logits, orders, nonconcave)
        implementation = backend.select_implementation(logits, values)
        wants_logits, _, _, *wanted = ctx.needs_input_grad
        slopes = _kind_of_slopes(wanted, values, logits, reduction)
        keeps = "states" if wants_logits else "nothing"
        if wants_logits and reduction != "none" and implementation.keeps_gradient(logits):
            keeps = "gradient"
        options = values, ignore_index, reduction, slopes, keeps
        loss, states, *ctx.found, divisor = implementation.class_loss(logits, targets, *options)
        ctx.solved_by = implementation, options, divisor, nonconcave
        ctx.save_for_backward(logits, targets, states, *tensors)
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, targets, states, *tensors = ctx.saved_tensors
        implementation, options, divisor, nonconcave = ctx.solved_by
        values, ignore_index, _, kind, _ = options
        wants_logits, _, _, *wanted = ctx.needs_input_grad
        if not is_last_derivative(grad):
            grad, orders = checked_memory(grad) / divisor, _given(values, tensors)
            with backend.use_plain_torch(implementation is any_device):
                gradients = _through_class_loss(grad, logits, targets, orders, ignore_index, nonconcave, wanted)
            return gradients[0], None, None, *gradients[1 : 1 + len(wanted)]
        is_one = grad.is_cpu and not grad.dim() and grad.item() == 1
        gradient, slopes = ctx.found or implementation.class_loss(logits, targets, *options)[2:4]
        if states is None:
            ctx.found = None  # autograd copies what is held elsewhere; a second backward pass computes it again
            gradient = gradient if gradient is None or is_one else implementation.scaled(gradient, grad)
        elif wants_logits:
            gradient = implementation.class_loss_backward(logits, targets, states, grad, values, ignore_index, divisor)
        if kind == "rows":
            slopes = (grad / divisor).unsqueeze(-1) * slopes
        elif kind == "sums" and (states is not None or not is_one):  # copies, where a second pass reads them again
            slopes = slopes * grad if isinstance(slopes, Tensor) else [slope * grad for slope in slopes]
        return gradient, None, None, *_wanted_slopes(slopes, wanted)


def _tensors(orders: Orders, logits: Tensor) -> Sequence[Tensor | None]:
    """The orders that a node needs as tensors, in their places: learned ones, and all of which it has not the value.

    So torch notices if one of them is changed before the backward pass.
    """
    if are_numbers(orders):
        return ()  # an input that nobody needs takes a node time, too
    kept = [
        isinstance(order, Tensor) and (order.requires_grad or order.numel() != 1 or not is_read(order, logits))
        for order in orders
    ]
    return [order if keep else None for order, keep in zip(orders, kept, strict=True)]  # type: ignore[misc]


def _given(values: Sequence[Any], tensors: Sequence[Tensor | None]) -> Any:
    """The orders as the caller gave them, from their values and their tensors."""
    if not tensors:
        return values
    return [value if tensor is None else tensor for value, tensor in zip(values, tensors, strict=True)]


def _kind_of_slopes(wanted: Sequence[bool], values: Any, rows: Tensor, reduction: str = "sum") -> str:
    """Which slopes a node needs for the gradients of q, r and T₀; autograd sums them to the shapes of the orders.

    The sum over all rows, a number, suffices if each order is one number. An order of a single row may have a shape.
    """
    if True not in wanted:
        return "none"
    one_number = reduction != "none" and hold_one_value(values) and rows.numel() > rows.shape[-1]
    return "sums" if one_number else "rows"


def _wanted_slopes(slopes: Slopes, wanted: Sequence[bool]) -> Sequence[Tensor | None]:
    if slopes is None:
        return (None,) * len(wanted)
    q, r, temperature = slopes.unsqueeze(-2).unbind(-1) if isinstance(slopes, Tensor) else slopes
    return q if wanted[0] else None, r if wanted[1] else None, temperature if wanted[2] else None


class _TransformedMap(torch.autograd.Function):
    """The map by its operator, with the rules for transforms, which take as long as a softmax of a small batch."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*inputs: Any) -> Any:
        outputs = torch_operators.solve(*inputs)
        return outputs if inputs[-1] else outputs[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _save(ctx, (output[0] if isinstance(output, tuple) else output,), joined(inputs[1:]))
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, grad_p: Tensor | None, grad_conjugate: Tensor | None = None) -> tuple[Tensor | None, ...]:
        (p,), orders = _saved(ctx)
        with backend.use_plain_torch(ctx.is_plain_torch):
            gradients = _through_outputs(grad_p, grad_conjugate, p, orders, ctx.needs_input_grad[1:4])
        return *gradients, *[None] * 5


# For the operator where it is called without the function above: compiled, exported, traced, or with a subclass.
torch.library.register_autograd("sharmix::solve", _TransformedMap.backward, setup_context=_TransformedMap.setup_context)


class _ForwardMap(_TransformedMap):
    """The map with a rule for forward mode, which torch.compile does not support."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _TransformedMap.setup_context(ctx, inputs, output)
        _save(ctx, (output[0] if inputs[-1] else output,), joined(inputs[1:]), forward=True)
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


def _keep_class_loss(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.nonconcave, ctx.ignore_index, *_ = inputs[8:]
    _save(ctx, (*inputs[:2], *output[1:]), joined(inputs[2:]))


def _class_loss_backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    (logits, targets, states, slopes, divisor), orders = _saved(ctx)
    grad, wanted = checked_memory(grad) / divisor, ctx.needs_input_grad[2:5]
    with backend.use_plain_torch(ctx.is_plain_torch):
        if _differentiated_again():
            settings = targets, orders, ctx.ignore_index, ctx.nonconcave
            by_logits, *by_orders = _through_class_loss(grad, logits, *settings, wanted)
        else:
            by_logits = None
            if ctx.needs_input_grad[0]:
                inputs = logits, targets, states, grad, *separated(orders), ctx.ignore_index
                by_logits = torch_operators.class_loss_backward(*inputs)
            by_orders = _by_order(grad.unsqueeze(-1) * slopes, orders, wanted) if any(wanted) else [None] * 3
    return by_logits, None, *by_orders, *[None] * 7


torch.library.register_autograd("sharmix::class_loss", _class_loss_backward, setup_context=_keep_class_loss)


def _differentiated_again() -> bool:
    """Whether the result of a backward pass may be differentiated again, in reverse or in forward mode."""
    return torch.is_grad_enabled() or forward_mode_active()


def _save(ctx: Any, tensors: Sequence[Tensor], orders: Sequence[Order], forward: bool = False) -> None:
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


def _through_outputs(
    grad_p: Tensor | None, grad_conjugate: Tensor | None, p: Tensor, orders: Any, wanted: Sequence[bool]
) -> Gradients:
    """The gradients by logits, q, r and T₀ from those by p and its conjugate, by the operators or differentiable."""
    gradients: Gradients = [None] * 4
    if grad_p is not None:
        gradients = _through_map(grad_p, p, orders, wanted)
    if grad_conjugate is not None:
        others: Any = _through_conjugate(grad_conjugate, p, orders, wanted)
        gradients = [other if one is None else one + other for one, other in zip(gradients, others, strict=True)]
    return gradients


def _through_map(grad: Tensor, p: Tensor, orders: Sequence[Order], wanted: Sequence[bool]) -> Gradients:
    """The gradients by logits, q, r and T₀ from the gradient by p; `wanted` tells which of q, r and T₀ need one."""
    checked_memory(grad)
    if not _differentiated_again():
        by_logits, along = torch_operators.map_backward(p, grad, *separated(orders), any(wanted))
        return [by_logits, *(_by_order(along, orders, wanted) if any(wanted) else [None] * 3)]
    at, grad = MapSensitivity(p, *orders), torch.where(p > 0, grad, 0)  # as `any_device.map_backward`
    if not any(wanted):
        return [at.logit_product(grad), None, None, None]
    return [at.logit_product(grad), *_summed(grad, (at.wrt_q, at.wrt_r, at.wrt_temperature), orders, wanted)]


def _through_conjugate(grad: Tensor, p: Tensor, orders: Sequence[Order], wanted: Sequence[bool]) -> Gradients:
    grad = grad.unsqueeze(-1)
    if not any(wanted):
        return [grad * p, None, None, None]
    at = ConjugateSensitivity(p, *orders)
    slopes = at.conjugate_wrt_q, at.conjugate_wrt_r, at.conjugate_wrt_temperature
    return [grad * p, *_summed(grad, slopes, orders, wanted)]


def _through_class_loss(
    grad: Tensor,
    logits: Tensor,
    targets: Tensor,
    orders: Orders,
    ignore_index: int,
    nonconcave: str,
    wanted: Sequence[bool],
) -> Gradients:
    """The gradients by logits, q, r and T₀, differentiable again; `grad` is for each row's loss, or for all rows."""
    logits, indices, counted = counted_rows(logits, targets, ignore_index)
    p = solved(logits, orders, nonconcave, current_caller())
    by_logits = grad.unsqueeze(-1) * error_of(p, indices, counted)
    if not any(wanted):
        return [by_logits, None, None, None]
    slopes = ConjugateSensitivity(p, *orders).conjugate_slopes() * counted.unsqueeze(-1)
    return [by_logits, *_by_order(grad.unsqueeze(-1) * slopes, orders, wanted)]


def error_of(p: Tensor, indices: Tensor, counted: Tensor) -> Tensor:
    """p − y of the rows that are counted, and 0 in the others, by operations that torch differentiates."""
    return p.scatter_add(-1, indices.unsqueeze(-1), -torch.ones_like(p[..., :1])) * counted.unsqueeze(-1)


def _summed(
    grad: Tensor, slopes: Sequence[Callable[[], Tensor]], orders: Sequence[Order], wanted: Sequence[bool]
) -> Gradients:
    """Σ grad · slope by each wanted order, summed to the shape of the order."""
    return [
        _like((grad * slope()).sum(-1, keepdim=True), order) if want else None
        for slope, order, want in zip(slopes, orders, wanted, strict=True)
    ]


def _by_order(along: Tensor, orders: Sequence[Order], wanted: Sequence[bool]) -> Gradients:
    """The gradients of each row [..., 3], summed to the shapes of their orders."""
    rows = along.unsqueeze(-2).unbind(-1)
    return [_like(row, order) if want else None for row, order, want in zip(rows, orders, wanted, strict=True)]


def _like(gradient: Tensor, order: Order) -> Tensor | None:
    return gradient.sum_to_size(order.shape) if isinstance(order, Tensor) else None
