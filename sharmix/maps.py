"""SharMiX and the maps it contains: sparsemax, α-entmax and softmax."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd import forward_ad

from sharmix._arguments import Parameter, checked, entropy_parameters
from sharmix._backend import node
from sharmix._operators import function_transforms_active, map_backward, readable, solve
from sharmix._sensitivity import ConjugateSensitivity, MapSensitivity

Nonconcave = Literal["global", "error"]


def sharmix(
    logits: Tensor,
    q: Parameter = 1.25,
    r: Parameter = 1.5,
    temperature: Parameter = 1.0,
    dim: int = -1,
    nonconcave: Nonconcave = "global",
) -> Tensor:
    """The Sharma–Mittal map.

        p* = argmax over the simplex of  p·z + (T₀/q) H_{q,r}(p)

    It is α-entmax with α = q whose temperature is set by its own output's entropy, T = T₀ exp((q − r) R_q(p*)).
    r = q is α-entmax, (2, 2) sparsemax, (1, 1) softmax, all exactly.

    Args:
        logits: z, floating point, of any shape. −inf gets probability 0; a row with a NaN, or with nothing but −inf,
            is NaN. Half precision is computed in float32.
        q: q ≥ 1, sparser as it grows; a number or a tensor that broadcasts with size 1 along `dim`.
        r: r > 0, sharper as it grows; likewise.
        temperature: T₀ > 0, in units of the logits; likewise.
        dim: the dimension that holds the classes.
        nonconcave: for r < 2 − 1/q, where the objective can have several maxima and the map can jump: `global`
            returns the highest of them, found by branch and bound; `error` raises. For q > 2 and r within 1e-6 of
            2 − 1/q, of maxima whose objectives are within 1e-10 T₀ it may return another.

    Returns:
        p*, shaped like `logits` and of their dtype. Its error is about that of rounding the arguments; p* answers even
        such changes strongly where r is within 1e-6 of 2 − 1/q, or q > 2 and two nearly equal logits are about to join
        the support. Derivatives with respect to logits, q, r and temperature are exact functions of p*, and
        differentiable again; only forward mode within forward mode is not to be had: torch drops the outer tangent of
        every custom function.

    Raises:
        TypeError: the logits are not floating-point numbers.
        ValueError: a parameter's value or shape is not allowed, or `nonconcave="error"` and r < 2 − 1/q.

    Source: the SharMiX paper's Eq. (2); solved in `math` section 2.
    """
    readable_logits = readable(logits, dim)
    last = dim in (-1, logits.dim() - 1)
    z = readable_logits if last else readable_logits.movedim(dim, -1)
    graph = node() if nonconcave == "global" else None
    probabilities: Tensor | None = graph.map(z, q, r, temperature) if graph else None
    if probabilities is None:
        parameters = entropy_parameters(logits, dim, q=q, r=r, temperature=temperature)
        probabilities, _ = map_and_conjugate(z, parameters, nonconcave)
    probabilities = probabilities if last else probabilities.movedim(-1, dim)
    return probabilities if readable_logits is logits else probabilities.to(logits.dtype)


def entmax(logits: Tensor, alpha: Parameter = 1.5, dim: int = -1) -> Tensor:
    """α-entmax: argmax over the simplex of p·z + (1 − Σ pᵢ^α)/(α(α − 1)), softmax at α = 1.

    Args:
        logits: as for `sharmix`.
        alpha: α ≥ 1, a number or a tensor that broadcasts with size 1 along `dim`.
        dim: the dimension that holds the classes.

    Returns:
        Probabilities, shaped like `logits`.

    Raises:
        TypeError, ValueError: as for `sharmix`.

    Source: Peters, Niculae and Martins (2019); SharMiX at q = r = α.
    """
    order = checked(alpha, "alpha")
    return sharmix(logits, q=order, r=order, dim=dim)


def sparsemax(logits: Tensor, dim: int = -1) -> Tensor:
    """Sparsemax: the point of the simplex nearest to the logits, argmin of ‖p − z‖².

    Args:
        logits: as for `sharmix`.
        dim: the dimension that holds the classes.

    Returns:
        Probabilities, shaped like `logits`.

    Raises:
        TypeError, ValueError: as for `sharmix`.

    Source: Martins and Astudillo (2016); SharMiX at q = r = 2.
    """
    return sharmix(logits, q=2.0, r=2.0, dim=dim)


def shifted(logits: Tensor) -> Tensor:
    """Logits minus their row's maximum; no output depends on that constant, so no gradient flows through it."""
    return logits - logits.detach().amax(-1, keepdim=True)


def map_and_conjugate(logits: Tensor, parameters: Sequence[Parameter], nonconcave: Nonconcave) -> tuple[Tensor, Tensor]:
    """p* and Ω*(x) = max_p p·x + (T₀/q) H_{q,r}(p), for logits x [..., classes] measured from their row's largest.

    `parameters` are q, r and T₀, each a number, of one element or broadcasting to [..., 1].

    Differentiable to any order; one tensor as large as the logits, p*, is kept for the backward pass.
    """
    probabilities, conjugate = _function().apply(logits, *parameters, nonconcave)
    return probabilities, conjugate


def _function() -> type[torch.autograd.Function]:
    """A compiler cannot trace a function that brings a forward-mode rule, and needs none; the rule that function
    transforms need costs as much as softmax on a small batch."""
    if torch.compiler.is_compiling():
        return _SharmaMittal
    return _SharmaMittalTransformed if function_transforms_active() else _SharmaMittalWithForwardMode


class _SharmaMittal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        outputs: tuple[Tensor, Tensor] = solve(*inputs)
        _keep(ctx, inputs, outputs)
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        grad_p, grad_conjugate = grads
        (p,), parameters = kept(ctx)
        through_map = pull_back(ctx.needs_input_grad, grad_p, p, parameters)
        if grad_conjugate is None:
            return (*through_map, None)
        through_conjugate = _pull_back_conjugate(ctx.needs_input_grad, grad_conjugate, p, parameters)
        return (*(_sum(one, other) for one, other in zip(through_map, through_conjugate, strict=True)), None)


def _keep(ctx: Any, inputs: tuple[Any, ...], outputs: tuple[Tensor, Tensor]) -> None:
    keep(ctx, outputs[:1], inputs[1:4])
    ctx.set_materialize_grads(False)


def differentiated_again() -> bool:
    """Whether what a backward pass computes may be differentiated itself, in reverse or in forward mode."""
    return torch.is_grad_enabled() or forward_ad._current_level >= 0


def keep(ctx: Any, tensors: Sequence[Tensor], parameters: Sequence[Parameter]) -> None:
    """Save tensors, and parameters that are tensors or numbers, for the backward pass and forward mode."""
    all_tensors = *tensors, *(one for one in parameters if isinstance(one, Tensor))
    ctx.save_for_backward(*all_tensors)
    ctx.save_for_forward(*all_tensors)
    ctx.numbers = [None if isinstance(one, Tensor) else one for one in parameters]


def kept(ctx: Any) -> tuple[Sequence[Tensor], list[Parameter]]:
    """The tensors and the parameters."""
    tensors = ctx.saved_tensors
    count = len(tensors) - ctx.numbers.count(None)
    of_parameters = iter(tensors[count:])
    return tensors[:count], [next(of_parameters) if number is None else number for number in ctx.numbers]


Gradients = list[Tensor | None]  # by logits, q, r and temperature


def pull_back(wanted: Sequence[bool], grad: Tensor | None, p: Tensor, parameters: Sequence[Parameter]) -> Gradients:
    """The gradients wanted by logits, q, r and T₀, for the gradient of p."""
    if grad is None:
        return [None] * 4
    if not differentiated_again():
        grad_logits, along = map_backward(p, grad, *parameters, any(wanted[1:4]))
        if not along.shape[-1]:
            return [grad_logits, None, None, None]
        return [grad_logits, *_shaped(wanted, along.unsqueeze(-1).unbind(-2), parameters)]
    at = MapSensitivity(p, *parameters)
    slopes = (at.wrt_q, at.wrt_r, at.wrt_temperature)
    by_parameter = [
        (grad * slope()).sum(-1, keepdim=True) if want else None
        for want, slope in zip(wanted[1:4], slopes, strict=True)
    ]
    return [at.logit_product(grad) if wanted[0] else None, *_shaped(wanted, by_parameter, parameters)]


def _pull_back_conjugate(
    wanted: Sequence[bool], grad: Tensor | None, p: Tensor, parameters: Sequence[Parameter]
) -> Gradients:
    if grad is None:
        return [None] * 4
    grad = grad.unsqueeze(-1)
    by_logits = grad * p if wanted[0] else None
    if not any(wanted[1:4]):
        return [by_logits, None, None, None]
    at = ConjugateSensitivity(p, *parameters)
    slopes = (at.conjugate_wrt_q, at.conjugate_wrt_r, at.conjugate_wrt_temperature)
    by_parameter = [grad * slope() if want else None for want, slope in zip(wanted[1:4], slopes, strict=True)]
    return [by_logits, *_shaped(wanted, by_parameter, parameters)]


def _shaped(wanted: Sequence[bool], gradients: Sequence[Tensor | None], parameters: Sequence[Parameter]) -> Gradients:
    """Gradients [..., 1] summed to the shapes of their parameters."""
    return [
        gradient.sum_to_size(parameter.shape)
        if gradient is not None and want and isinstance(parameter, Tensor)
        else None
        for want, gradient, parameter in zip(wanted[1:4], gradients, parameters, strict=True)
    ]


def _sum(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    if one is None or other is None:
        return one if other is None else other
    return one + other


class _SharmaMittalWithForwardMode(_SharmaMittal):
    @staticmethod
    def jvp(ctx: Any, x: Tensor | None, *parameters: Tensor | None) -> tuple[Tensor, Tensor]:
        (p,), orders = kept(ctx)
        at, dtype = MapSensitivity(p, *orders), p.dtype
        p, conjugate = torch.zeros_like(at.p), torch.zeros_like(at.p[..., :1])
        if x is not None:
            p, conjugate = at.logit_product(x), (at.p * x).sum(-1, keepdim=True)
        slopes = (
            (at.wrt_q, at.conjugate_wrt_q),
            (at.wrt_r, at.conjugate_wrt_r),
            (at.wrt_temperature, at.conjugate_wrt_temperature),
        )
        for tangent, (wrt, conjugate_wrt) in zip(parameters, slopes, strict=False):  # the last input is no tensor
            if tangent is not None:
                tangent = tangent.to(at.p.dtype)
                p, conjugate = p + wrt() * tangent, conjugate + conjugate_wrt() * tangent
        return p.to(dtype), conjugate.squeeze(-1)


class _SharmaMittalTransformed(_SharmaMittalWithForwardMode):
    generate_vmap_rule = True

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, Tensor]:
        outputs: tuple[Tensor, Tensor] = solve(*inputs)
        return outputs

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        _keep(ctx, inputs, output)
