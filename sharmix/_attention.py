"""Attention with the weights of any activation, and a scale of its scores that grows with the number of keys."""

from collections.abc import Callable, Sequence
from itertools import zip_longest
from math import prod
from typing import Any, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from sharmix._activation import Activation
from sharmix._arguments import as_autocast, widened
from sharmix._attention_in_blocks import attention_in_blocks, can_be_in_blocks
from sharmix._attention_in_kernels import attention_in_kernels, can_be_in_kernels
from sharmix._caller import current_caller
from sharmix._learned_range import learned_names
from sharmix._private_torch import is_plain_tensor
from sharmix.activations import AlphaReLU
from sharmix.functional import MaskedRows
from sharmix.registry import build_activation

_WHOLE_BYTES = 1 << 23  # of scores; more are computed a block of queries at a time, which is faster, too

Weighting = Activation | str | Callable[[Tensor], Tensor]
LengthScale = Callable[[Tensor], Tensor]


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    activation: Weighting,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    length_scale: LengthScale | None = None,
    masked_rows: MaskedRows = "zeros",
) -> Tensor:
    """Scaled dot product attention with an activation in place of softmax.

        activation(scale · Q Kᵀ + mask) V

    It has the arguments of `torch.nn.functional.scaled_dot_product_attention`, and with `softmax` the same results.
    Where all scores would take more than 8 MiB they are computed a block of queries at a time, and again in the
    backward pass. On CUDA kernels that store no score take most activations of the Sharma–Mittal family.

    Args:
        query: [..., L, E], floating point.
        key: [..., S, E]. Query, key and value have one dtype; under `torch.autocast` their dtypes may differ.
        value: [..., S, Ev].
        activation: the map from scores [..., L, S], float32 or wider, to weights along the last dimension: an
            `Activation`, whose orders may hold one value for each head, [heads, 1, 1]; the name of an activation that
            learns nothing; or any function, which gets all scores at one time.
        attn_mask: broadcasts to [..., L, S]: bool, True where a key takes part, or numbers to add to the scores.
        dropout_p: the share of weights to set to 0, on every call.
        is_causal: whether query i sees no key after key i. Queries and keys count from the first, also where L ≠ S.
        scale: the factor of the dot products; None means 1/√E.
        enable_gqa: whether each head of key and value, dimension -3, serves several heads of the query.
        length_scale: a further factor of the dot products, as a function of the number n ≥ 1 of keys that a query sees,
            such as `LogLengthScale()`. Its argument is n in the dtype of the scores, [..., L, 1] or [1, 1]; its result
            must broadcast to [..., L, 1].
        masked_rows: the output for a query whose keys are all masked: `zeros`, as in torch, or `nan`. The gradients
            are 0.

    Returns:
        The output [..., L, Ev], in the dtype of `value`, or in autocast's.

    Raises:
        TypeError: the mask is neither bool nor floating point, or dtypes differ.
        ValueError: the activation, a shape or `masked_rows` is not allowed, or there is a mask beside `is_causal`.

    Source: Vaswani et al. (2017), section 3.2.1; with α-entmax: Correia, Niculae and Martins (2019).

    Example:
        >>> query = torch.tensor([[2.0, 0.0]])
        >>> key = torch.tensor([[2.0, 0.0], [1.0, 1.0], [-1.0, 0.0]])
        >>> sharmix.attention(query, key, torch.eye(3), "entmax")
        tensor([[0.9330, 0.0670, 0.0000]])
    """
    return attend(
        query, key, value, activation, attn_mask, dropout_p, is_causal, scale, enable_gqa, length_scale, masked_rows,
        need_weights=False,
    )[0]  # fmt: skip


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    activation: Weighting,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    length_scale: LengthScale | None = None,
    masked_rows: MaskedRows = "zeros",
    need_weights: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """The output of `attention`, and, if needed, the weights [..., L, S] after dropout, in the dtype of `value`."""
    weigh = weighting(activation)
    if not 0 <= dropout_p <= 1:
        raise ValueError(f"dropout_p={dropout_p!r} is not allowed; it must be between 0 and 1")
    _check(query, key, value, attn_mask, is_causal, enable_gqa, masked_rows)
    filling = 0.0 if masked_rows == "zeros" else torch.nan
    factor = max(query.shape[-1], 1) ** -0.5 if scale is None else scale
    if not need_weights and not dropout_p and can_be_in_kernels(query, weigh):
        output = _in_kernels(query, key, value, weigh, attn_mask, is_causal, factor, length_scale, filling)
        if output is not None:
            return output, None
    if enable_gqa:
        key, value = (heads.repeat_interleave(query.shape[-3] // heads.shape[-3], -3) for heads in (key, value))
    scaled, key = widened(query) * factor, widened(key)
    if length_scale is not None:
        scaled = scaled * length_scale(_number_of_keys(attn_mask, is_causal, scaled, key))
    if not need_weights and _takes_blocks(weigh, scaled, key, value, attn_mask):
        return _in_blocks(scaled, key, value, weigh, attn_mask, dropout_p, is_causal, filling), None
    if is_causal:
        attn_mask = query.new_ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
    scores = widened(scaled @ key.mT)  # the queries are scaled, not the scores, which are more numbers
    sees_none = None
    if attn_mask is not None:
        allowed = _allowed(attn_mask, key)
        # For a query that sees no key the mask is lifted here, since a row of −inf alone would have a gradient of NaN.
        # Its output is filled below.
        sees_none = ~allowed.any(-1, keepdim=True)
        if attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~(attn_mask | sees_none), -torch.inf)
        else:
            scores = scores + attn_mask.masked_fill(sees_none, 0)
    weights = weigh(scores).to(value.dtype)
    if dropout_p:
        weights = dropout(weights, dropout_p)
    output = weights @ value
    if sees_none is not None:  # the output is filled, not the weights, which are more numbers
        output = output.masked_fill(sees_none, filling)
        weights = weights.masked_fill(sees_none, filling) if need_weights else weights
    return output, weights if need_weights else None


def weighting(activation: Weighting) -> Callable[[Tensor], Tensor]:
    """The function from scores to weights that `activation` names or is."""
    if isinstance(activation, str):
        built = build_activation(activation).eval()
        if list(built.parameters()) or isinstance(built, AlphaReLU):
            learns = f"activation={activation!r} has parameters or a threshold to learn"
            raise ValueError(f"{learns}; pass the module sharmix.build_activation({activation!r})")
        return built
    if isinstance(activation, Activation) and activation.dim != -1:
        raise ValueError(f"activation has dim={activation.dim}; it must be -1, for the keys are the last dimension")
    if isinstance(activation, type):
        raise TypeError(f"activation must be an instance, {activation.__name__}(…), got the class")
    if not callable(activation):
        raise TypeError(f"activation must be an Activation, a name or a function, got {type(activation).__name__}")
    return activation


def _check(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    is_causal: bool,
    enable_gqa: bool,
    masked_rows: MaskedRows,
) -> None:
    dtypes = query.dtype, key.dtype, value.dtype
    device = query.device.type
    is_autocast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    one_dtype = len(set(dtypes)) == 1 or is_autocast
    if not one_dtype or not all(dtype.is_floating_point for dtype in dtypes):
        raise TypeError("query, key and value must be of one floating-point dtype, got {}, {} and {}".format(*dtypes))
    shapes = [tuple(tensor.shape) for tensor in (query, key, value)]
    if min(map(len, shapes)) < 2 or shapes[0][-1] != shapes[1][-1] or shapes[1][-2] != shapes[2][-2]:
        raise ValueError(f"query, key and value must be [..., L, E], [..., S, E] and [..., S, Ev], got {shapes}")
    if enable_gqa and (min(map(len, shapes)) < 3 or any(shapes[0][-3] % shape[-3] for shape in shapes[1:])):
        raise ValueError(f"enable_gqa needs heads of the query that are a multiple of those of key and value: {shapes}")
    if mask is not None and is_causal:
        raise ValueError("attn_mask and is_causal=True are not allowed together; put the causal part into the mask")
    of_mask = (torch.bool, torch.float32, query.dtype)
    if mask is not None and mask.dtype not in of_mask and not (is_autocast and mask.is_floating_point()):
        raise TypeError(f"attn_mask must be bool, float32 or of the query's {query.dtype}, got {mask.dtype}")
    _check_broadcast(shapes, mask, enable_gqa)
    if masked_rows not in get_args(MaskedRows):
        raise ValueError(f"masked_rows={masked_rows!r} is not allowed; it must be 'nan' or 'zeros'")


def _check_broadcast(shapes: list[tuple[int, ...]], mask: Tensor | None, enable_gqa: bool) -> None:
    leading = [shape[:-2] for shape in shapes]
    if enable_gqa:
        leading = [(*batch[:-1], leading[0][-1]) for batch in leading]
    elif not _broadcasts(leading):
        message = "query, key and value must have leading dimensions that broadcast, if not with enable_gqa=True"
        raise ValueError(f"{message}; got {shapes}")
    if mask is None:
        return
    scores = [(*batch, shapes[0][-2], shapes[1][-2]) for batch in leading]
    if mask.dim() < 2 or not _broadcasts([*scores, tuple(mask.shape)]):
        raise ValueError(f"attn_mask of shape {tuple(mask.shape)} does not broadcast to [..., L, S], of {shapes}")


def _broadcasts(shapes: list[tuple[int, ...]]) -> bool:
    """Whether the shapes broadcast; not by `torch.broadcast_shapes`, whose first call imports sympy."""
    sizes = zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1)
    return all(len({*of_dimension} - {1}) <= 1 for of_dimension in sizes)


def _takes_blocks(weigh: Callable[[Tensor], Tensor], query: Tensor, key: Tensor, value: Tensor, mask: Any) -> bool:
    """Whether attention is computed a block of queries at a time: the scores are many, and torch sees plain tensors."""
    leading = _broadcast(query, key, value, mask)
    scores = prod(leading) * query.shape[-2] * key.shape[-2] * query.element_size()
    if scores <= _WHOLE_BYTES or not current_caller().is_plain:
        return False
    rows = query.shape[-2]
    if mask is not None and ((mask.requires_grad and torch.is_grad_enabled()) or mask.shape[-2] not in (1, rows)):
        return False
    return all(map(is_plain_tensor, (query, key, value))) and can_be_in_blocks(weigh, leading, rows)


def _in_kernels(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    activation: Any,
    mask: Tensor | None,
    is_causal: bool,
    factor: float,
    length_scale: LengthScale | None,
    filling: float,
) -> Tensor | None:
    """The output of the CUDA kernels, or None where they do not take the call."""
    leading = _broadcast(query, key, value, mask)
    if not can_be_in_blocks(activation, leading, query.shape[-2]):
        return None
    if length_scale is not None:  # without autocast queries of half precision then stay in float32, for no kernel
        query = widened(query)
        query = query * length_scale(_number_of_keys(mask, is_causal, query, key))
    query, key, value = as_autocast(query, key, value)
    output = attention_in_kernels(query, key, value, activation, mask, is_causal, factor, leading)
    if output is None or mask is None or filling == 0:
        return output
    return output.masked_fill(~_allowed(mask, key).any(-1, keepdim=True), filling)


def _in_blocks(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    activation: Any,
    mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    filling: float,
) -> Tensor:
    leading = _broadcast(query, key, value, mask)
    query, key, value = as_autocast(query, key, value)
    with torch.autocast(query.device.type, enabled=False):
        output, blind = attention_in_blocks(query, key, value, activation, mask, dropout_p, is_causal, leading)
    return output if mask is None else output.masked_fill(blind, filling)


def _broadcast(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> tuple[int, ...]:
    """The leading dimensions of the scores."""
    shapes = [reversed(one.shape[:-2]) for one in (query, key, value, mask) if one is not None]
    return tuple(0 if 0 in of else max(of) for of in zip_longest(*shapes, fillvalue=1))[::-1]


def _allowed(mask: Tensor, key: Tensor) -> Tensor:
    """The keys that take part, bool [..., L or 1, S]."""
    allowed = mask if mask.dtype == torch.bool else mask != -torch.inf
    return allowed.expand(*allowed.shape[:-1], key.shape[-2])


def _number_of_keys(mask: Tensor | None, is_causal: bool, query: Tensor, key: Tensor) -> Tensor:
    """The number of keys that each query sees, [..., L, 1] or [1, 1].

    It is 1 for a query that sees no key: at 0 keys a factor may be infinite, with a gradient of NaN.
    """
    keys = max(key.shape[-2], 1)
    if is_causal:
        places = torch.arange(1, query.shape[-2] + 1, dtype=query.dtype, device=query.device)
        return places.clamp_max(keys).unsqueeze(-1)
    if mask is None:
        return query.new_full((1, 1), keys)
    return _allowed(mask, key).sum(-1, keepdim=True, dtype=query.dtype).clamp_min(1)


class LogLengthScale(nn.Module):
    """A factor of the scores that grows with the number n of keys that a query may see.

        δ + β (log(1 + n))^γ

    At a fixed temperature, attention over more keys is flatter. The factor makes it sharper: it is an inverse
    temperature that each head learns.

    Args:
        num_heads: the number of heads, each of which has its own factor; 1 for one factor for all heads.
        delta, beta, gamma: δ, β and γ. Scalable-Softmax is δ = 0, γ = 1 with β learned.
        learned: which of `delta`, `beta` and `gamma` are learned: names, True for β and γ, or False for none.

    Shape:
        n (*, L, 1); the factor (*, num_heads, L, 1), where dimension -3 of n is missing, 1 or num_heads. For one head,
        or where nothing is learned, the factor has the shape of n.

    Raises:
        ValueError: `learned` or `num_heads` is not allowed.

    Source: ASEntmax, Vasylenko et al., Long-Context Generalization with Sparse Attention (2025), section 4, whose code
    has log(1 + n), too; β and γ start at the means of the values that it draws. Scalable-Softmax: Nakanishi (2025).

    Example:
        >>> n = torch.tensor([[64.0], [1024.0]])
        >>> sharmix.LogLengthScale(delta=0.0, beta=0.25, gamma=1.0, learned=False)(n)
        tensor([[1.0436],
                [1.7331]])
    """

    def __init__(
        self,
        num_heads: int = 1,
        delta: float = 1.0,
        beta: float = 0.55,
        gamma: float = 0.0,
        learned: bool | Sequence[str] = True,
    ) -> None:
        super().__init__()
        if num_heads < 1:
            raise ValueError(f"num_heads={num_heads} is not allowed; it must be at least 1")
        starts = {"delta": delta, "beta": beta, "gamma": gamma}
        names = learned_names(learned, tuple(starts), ("beta", "gamma"))
        self.delta: float | Tensor
        self.beta: float | Tensor
        self.gamma: float | Tensor
        shape = (num_heads, 1, 1) if num_heads > 1 else (1, 1)  # one factor serves scores that have no heads, too
        for name, start in starts.items():
            setattr(self, name, nn.Parameter(torch.full(shape, float(start))) if name in names else start)

    def forward(self, n: Tensor) -> Tensor:
        """The factor for queries that see n keys, n ≥ 1."""
        return self.delta + self.beta * n.log1p() ** self.gamma

    def extra_repr(self) -> str:
        fixed = [name for name in ("delta", "beta", "gamma") if name not in self._parameters]
        return ", ".join(f"{name}={getattr(self, name)}" for name in fixed)
