"""The Fenchel–Young loss against one class a row, value and gradient each in one pass over the logits.

Nothing as large as the logits is kept for the backward pass but the logits themselves: a row's distribution is known
from its root, four numbers.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sharmix._arguments import Parameter, is_learned
from sharmix._backend import backend
from sharmix._operators import class_loss as class_losses
from sharmix._operators import class_loss_backward, function_transforms_active
from sharmix._sensitivity import ConjugateSensitivity
from sharmix.maps import Nonconcave, differentiated_again, keep, kept, map_and_conjugate


def is_fused(logits: object, targets: object) -> bool:
    """Whether `class_loss` is what a loss against these targets should be computed by."""
    return (
        isinstance(logits, Tensor)
        and isinstance(targets, Tensor)
        and not targets.is_floating_point()
        and backend(logits.device) != "torch"
        and not function_transforms_active()
    )


def class_loss(
    logits: Tensor,
    targets: Tensor,
    parameters: Sequence[Parameter],
    ignore_index: int,
    reduction: str,
    nonconcave: Nonconcave,
) -> Tensor:
    """L(z, y) = Ω*(z) − z_y; arguments as for `fenchel_young_loss`, checked, and parameters as for the map."""
    wants_slopes = torch.is_grad_enabled() and any(map(is_learned, parameters))
    function = _ClassLoss if torch.compiler.is_compiling() else _ClassLossWithForwardMode
    loss: Tensor = function.apply(logits, targets, *parameters, ignore_index, reduction, nonconcave, wants_slopes)
    return loss


class _ClassLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        targets: Tensor,
        q: Parameter,
        r: Parameter,
        temperature: Parameter,
        ignore_index: int,
        reduction: str,
        nonconcave: Nonconcave,
        wants_slopes: bool,
    ) -> Tensor:
        rows, states, slopes = class_losses(logits, targets, q, r, temperature, ignore_index, nonconcave, wants_slopes)
        count = (targets != ignore_index).sum().clamp_min(1) if reduction == "mean" else targets.new_ones(())
        keep(ctx, (logits, targets, states, slopes, count), (q, r, temperature))
        ctx.ignore_index, ctx.reduction, ctx.nonconcave = ignore_index, reduction, nonconcave
        loss: Tensor = rows if reduction == "none" else rows.sum() / count
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (logits, targets, states, slopes, count), parameters = kept(ctx)
        wanted = (ctx.needs_input_grad[0], *ctx.needs_input_grad[2:5])
        by_logits, *by_parameters = pull_back(
            wanted, grad, ctx.ignore_index, count, logits, targets, states, slopes, parameters, ctx.nonconcave
        )
        return by_logits, None, *by_parameters, None, None, None, None


def pull_back(
    wanted: Sequence[bool],
    grad: Tensor,
    ignore_index: int,
    count: Tensor | float,
    logits: Tensor,
    targets: Tensor,
    states: Tensor,
    slopes: Tensor,
    parameters: Sequence[Parameter],
    nonconcave: Nonconcave = "global",
) -> list[Tensor | None]:
    """The gradients wanted by logits, q, r and T₀, of a loss whose rows were divided by `count`."""
    grad = grad / count
    by_logits: Tensor | None = None
    if differentiated_again():
        error, slopes = _derivatives(logits, targets, parameters, ignore_index, nonconcave)
        by_logits = grad.unsqueeze(-1) * error
    elif wanted[0]:
        by_logits = class_loss_backward(logits, targets, states, grad, *parameters, ignore_index)
    by_parameters = [
        (grad * slope).unsqueeze(-1).sum_to_size(parameter.shape) if want and isinstance(parameter, Tensor) else None
        for want, slope, parameter in zip(wanted[1:], slopes.unbind(-1) or (slopes,) * 3, parameters, strict=True)
    ]
    return [by_logits, *by_parameters]


class _ClassLossWithForwardMode(_ClassLoss):
    @staticmethod
    def jvp(ctx: Any, z: Tensor | None, _: None, *tangents: Tensor | None) -> Tensor:
        (logits, targets, _states, _slopes, count), parameters = kept(ctx)
        by_logits, slopes = _derivatives(logits, targets, parameters, ctx.ignore_index, ctx.nonconcave)
        rows = torch.zeros_like(by_logits[..., 0]) if z is None else (by_logits * z).sum(-1)
        by_order = slopes.unsqueeze(-2).unbind(-1)
        for tangent, slope in zip(tangents, by_order, strict=False):  # the last inputs are no tensors
            if tangent is not None:
                rows = rows + (slope * tangent.to(slope.dtype)).squeeze(-1)
        return rows if ctx.reduction == "none" else rows.sum() / count


def _derivatives(
    logits: Tensor, targets: Tensor, parameters: Sequence[Parameter], ignore_index: int, nonconcave: Nonconcave
) -> tuple[Tensor, Tensor]:
    """p − y and the slopes by q, r and T₀ [..., 3] of each row's loss, differentiable themselves."""
    counted = (targets != ignore_index).unsqueeze(-1)
    p, _ = map_and_conjugate(torch.where(counted, logits, 0), parameters, nonconcave)
    classes = torch.where(counted, targets.unsqueeze(-1), 0).long()
    error = p.scatter_add(-1, classes, -torch.ones_like(p[..., :1]))
    return error * counted, ConjugateSensitivity(p, *parameters).conjugate_slopes() * counted
