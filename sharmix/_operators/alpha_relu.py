"""α-ReLU, α-entmax with a given threshold τ: its weights, and the autograd node of its loss against class indices."""

from typing import Any

import torch
from torch import Tensor

from sharmix._arguments import Order, checked_memory, number_if_read
from sharmix._caller import Caller, is_last_derivative
from sharmix._operators import backend, cpu
from sharmix._operators.any_device import reduced
from sharmix._operators.autograd import error_of, goes_directly
from sharmix._private_torch import is_plain_tensor
from sharmix._targets import counted_rows


def weights(logits: Tensor, alpha: Order, tau: Order) -> Tensor:
    """[(α − 1) z − τ]₊^{1/(α−1)}, by operations that torch differentiates itself."""
    return power((alpha - 1) * logits - tau, 1 / (alpha - 1))


def power(base: Tensor, exponent: Order) -> Tensor:
    """[base]₊^exponent, with slope 0 wherever it is 0 and NaN kept."""
    outside = base <= 0
    return torch.where(outside, 0, torch.where(outside, 1, base) ** exponent)


def has_node(caller: Caller, logits: Tensor, targets: Tensor, alpha: Order, tau: Order) -> bool:
    """Whether `ClassLoss` computes the loss: a plain call, with α not learned."""
    if not goes_directly(caller, logits, (alpha, tau)) or not is_plain_tensor(targets):
        return False
    learned = isinstance(alpha, Tensor) and alpha.requires_grad
    return not learned and (not isinstance(tau, Tensor) or is_plain_tensor(tau))


class ClassLoss(torch.autograd.Function):
    """ℓ(z, y) against class indices for plain callers. For the backward pass it keeps the logits alone."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, alpha: Order, tau: Order, ignore_index: int, reduction: str
    ) -> Tensor:
        values: tuple[Any, Any] = number_if_read(alpha, logits), number_if_read(tau, logits)
        takes = cpu.kernel and logits.is_cpu and logits.numel() and not backend.is_plain_torch()
        ctx.in_kernel = bool(takes and cpu.kernel.takes_alpha(values[0], logits.dtype == torch.float32))
        compute = cpu.alpha_relu_loss if ctx.in_kernel else _class_loss
        loss, divisor = compute(logits, targets, *values, ignore_index, reduction)
        ctx.settings = values, ignore_index, divisor
        ctx.save_for_backward(logits, targets, tau if isinstance(tau, Tensor) else None)
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, targets, tau = ctx.saved_tensors
        (alpha, value), ignore_index, divisor = ctx.settings
        if is_last_derivative(grad) and ctx.in_kernel:
            arguments = logits, targets, grad, alpha, value, ignore_index, divisor
            by_logits = cpu.alpha_relu_loss_backward(*arguments)
        else:
            finite, indices, counted = counted_rows(logits, targets, ignore_index)
            p = weights(finite, alpha, value if tau is None else tau)
            by_logits = (checked_memory(grad) / divisor).unsqueeze(-1) * error_of(p, indices, counted)
        by_tau = by_logits.sum() / (1 - alpha) if ctx.needs_input_grad[3] else None  # −Σ (p − y)/(α − 1)
        return by_logits, None, None, by_tau, None, None


def _class_loss(
    logits: Tensor, targets: Tensor, alpha: Order, tau: Order, ignore_index: int, reduction: str
) -> tuple[Tensor, Tensor]:
    """The reduced loss in plain torch, and the divisor of its gradient."""
    logits, indices, counted = counted_rows(logits, targets, ignore_index)
    of_target = logits.gather(-1, indices.unsqueeze(-1)).squeeze(-1)
    conjugate = power((alpha - 1) * logits - tau, alpha / (alpha - 1)).sum(-1) / alpha
    return reduced(conjugate - of_target + (tau + 1 / alpha) / (alpha - 1), counted, reduction)
