"""The Fenchel–Young loss against one class a row, value and gradient each in one pass over the logits.

Nothing as large as the logits is kept for the backward pass but the logits themselves: a row's distribution is known
from its root, four numbers.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sharmix._backend import backend
from sharmix._operators import class_loss as class_losses
from sharmix._operators import class_loss_backward, function_transforms_active
from sharmix._sensitivity import ConjugateSensitivity
from sharmix.maps import Nonconcave, map_and_conjugate


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
    parameters: Sequence[Tensor],
    ignore_index: int,
    reduction: str,
    nonconcave: Nonconcave,
) -> Tensor:
    """L(z, y) = Ω*(z) − z_y; arguments as for `fenchel_young_loss`, checked, and parameters as for the map."""
    wants_slopes = torch.is_grad_enabled() and any(parameter.requires_grad for parameter in parameters)
    function = _ClassLoss if torch.compiler.is_compiling() else _ClassLossWithForwardMode
    loss: Tensor = function.apply(logits, targets, *parameters, ignore_index, reduction, nonconcave, wants_slopes)
    return loss


class _ClassLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        targets: Tensor,
        q: Tensor,
        r: Tensor,
        temperature: Tensor,
        ignore_index: int,
        reduction: str,
        nonconcave: Nonconcave,
        wants_slopes: bool,
    ) -> Tensor:
        rows, states, slopes = class_losses(logits, targets, q, r, temperature, ignore_index, nonconcave, wants_slopes)
        count = (targets != ignore_index).sum().clamp_min(1) if reduction == "mean" else targets.new_ones(())
        ctx.save_for_backward(logits, targets, q, r, temperature, states, slopes, count)
        ctx.save_for_forward(logits, targets, q, r, temperature, count)
        ctx.ignore_index, ctx.reduction, ctx.nonconcave = ignore_index, reduction, nonconcave
        loss: Tensor = rows if reduction == "none" else rows.sum() / count
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, targets, *parameters, states, slopes, count = ctx.saved_tensors
        grad = grad / count
        if torch.is_grad_enabled():  # to be differentiated again
            by_logits, slopes = _derivatives(logits, targets, parameters, ctx.ignore_index, ctx.nonconcave)
            grad_logits = grad.unsqueeze(-1) * by_logits
        elif ctx.needs_input_grad[0]:
            grad_logits = class_loss_backward(logits, targets, states, grad, *parameters, ctx.ignore_index)
        else:
            grad_logits = None
        wanted = ctx.needs_input_grad[2:5]
        grad_parameters = [
            (grad * slopes[..., i]).unsqueeze(-1).sum_to_size(parameter.shape) if wanted[i] else None
            for i, parameter in enumerate(parameters)
        ]
        return grad_logits, None, *grad_parameters, None, None, None, None


class _ClassLossWithForwardMode(_ClassLoss):
    @staticmethod
    def jvp(ctx: Any, z: Tensor | None, _: None, *tangents: Tensor | None) -> Tensor:
        logits, targets, *parameters, count = ctx.saved_tensors
        by_logits, slopes = _derivatives(logits, targets, parameters, ctx.ignore_index, ctx.nonconcave)
        rows = torch.zeros_like(by_logits[..., 0]) if z is None else (by_logits * z).sum(-1)
        by_order = slopes.unsqueeze(-2).unbind(-1)
        for tangent, slope in zip(tangents, by_order, strict=False):  # the last inputs are no tensors
            if tangent is not None:
                rows = rows + (slope * tangent.to(slope.dtype)).squeeze(-1)
        return rows if ctx.reduction == "none" else rows.sum() / count


def _derivatives(
    logits: Tensor, targets: Tensor, parameters: Sequence[Tensor], ignore_index: int, nonconcave: Nonconcave
) -> tuple[Tensor, Tensor]:
    """p − y and the slopes by q, r and T₀ [..., 3] of each row's loss, differentiable themselves."""
    counted = (targets != ignore_index).unsqueeze(-1)
    p, _ = map_and_conjugate(torch.where(counted, logits, 0), parameters, nonconcave)
    classes = torch.where(counted, targets.unsqueeze(-1), 0).long()
    error = p.scatter_add(-1, classes, -torch.ones_like(p[..., :1]))
    return error * counted, ConjugateSensitivity(p, *parameters).conjugate_slopes() * counted
