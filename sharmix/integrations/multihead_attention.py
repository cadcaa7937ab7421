"""`torch.nn.MultiheadAttention` with an activation in place of softmax."""

import functools
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from sharmix._attention import LengthScale, Weighting, attend, weighting
from sharmix.registry import build_activation


class SparseAttention(nn.MultiheadAttention):
    """Multi-head attention with an activation in place of softmax; it replaces a `torch.nn.MultiheadAttention`.

        concat_h(activation(Q_h K_hᵀ / √E_h + mask) V_h) Wᵒ

    The parameters have the same names and shapes as in `torch.nn.MultiheadAttention`, so each module loads the state
    dict of the other. Learned orders and scales are additional entries, so load with `strict=False`. With `softmax` the
    results are the same, except for a query that sees no key: its heads are zeros.

    Args:
        embed_dim, num_heads, dropout, bias, kdim, vdim, batch_first, device, dtype: as for
            `torch.nn.MultiheadAttention`.
        add_bias_kv, add_zero_attn: not supported; must be False.
        activation, length_scale: as for `sharmix.attention`, but a name may also be that of an activation that learns.
            Modules are trained and saved with this module.

    Shape:
        query (N, L, E), key (N, S, Ek), value (N, S, Ev) with `batch_first`, else (L, N, E) and so on, or without N;
        output: as query; weights: (N, L, S), or (N, heads, L, S) with `average_attn_weights=False`.

    Raises:
        ValueError: `add_bias_kv` or `add_zero_attn` is True, or the activation is not allowed.

    Source: Vaswani et al. (2017), section 3.2.2; with α-entmax: Correia, Niculae and Martins (2019).

    Example:
        >>> layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        >>> q = torch.full((4, 1, 1), 1.25)  # for each head
        >>> act = sharmix.SharMiX(q, learned=True)
        >>> sparse = sharmix.SparseAttention(16, 4, batch_first=True, activation=act)
        >>> sparse.load_state_dict(layer.self_attn.state_dict(), strict=False).missing_keys
        ['activation.q', 'activation.r']
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        activation: Weighting = "entmax",
        length_scale: LengthScale | None = None,
    ) -> None:
        if add_bias_kv or add_zero_attn:
            raise ValueError(f"{add_bias_kv=} and {add_zero_attn=} are not allowed; SparseAttention has neither")
        placed = {"device": device, "dtype": dtype}
        super().__init__(embed_dim, num_heads, dropout, bias, kdim=kdim, vdim=vdim, batch_first=batch_first, **placed)
        # If this were True, torch's encoder would compute softmax attention itself from our weights
        self._qkv_same_embed_dim = False
        built = build_activation(activation).to(device) if isinstance(activation, str) else activation
        self.activation = weighting(built)
        self.length_scale = length_scale

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The output, and the weights if `need_weights`; all is as for `torch.nn.MultiheadAttention`."""
        if is_causal and attn_mask is None:
            raise RuntimeError("is_causal=True is a hint that attn_mask is causal, but there is no attn_mask; pass it")
        if query.is_nested:
            raise RuntimeError("SparseAttention takes no nested tensor; set encoder.use_nested_tensor = False")
        batched = query.dim() == 3
        states = [self._batch_first(tensor) if batched else tensor[None] for tensor in (query, key, value)]
        self._check(states, batched, key_padding_mask, attn_mask)
        queries, keys, values = self._by_head(states)
        if key_padding_mask is not None:
            key_padding_mask = key_padding_mask.reshape(len(queries), 1, 1, keys.shape[-2])
        if attn_mask is not None and attn_mask.dim() == 3:
            attn_mask = attn_mask.reshape(len(queries), self.num_heads, *attn_mask.shape[1:])
        mask = _merged([mask for mask in (attn_mask, key_padding_mask) if mask is not None], query.dtype)
        arguments = queries, keys, values, self.activation, mask, self.dropout if self.training else 0.0
        output, weights = attend(*arguments, length_scale=self.length_scale, need_weights=need_weights)
        output = self.out_proj(output.transpose(1, 2).flatten(-2))
        weights = weights.mean(1) if weights is not None and average_attn_weights else weights
        if batched:
            return self._batch_first(output), weights
        return output[0], None if weights is None else weights[0]

    def _check(
        self, states: list[Tensor], batched: bool, key_padding_mask: Tensor | None, attn_mask: Tensor | None
    ) -> None:
        """Refuse wrong shapes and dtypes. Where N = heads, a mask [N, L, S] would pass as one for each head."""
        shapes = [tuple(tensor.shape) for tensor in states]
        if any(len(shape) != 3 or shape[0] != shapes[0][0] for shape in shapes) or shapes[1][1] != shapes[2][1]:
            raise ValueError(f"query, key and value must be [N, L, E], [N, S, Ek] and [N, S, Ev], got {shapes}")
        examples, length, keys = *shapes[0][:2], shapes[1][1]
        for name, mask, allowed in (
            ("key_padding_mask", key_padding_mask, ((examples, keys) if batched else (keys,),)),
            ("attn_mask", attn_mask, ((length, keys), (examples * self.num_heads, length, keys))),
        ):
            if mask is not None and tuple(mask.shape) not in allowed:
                raise ValueError(f"{name} of shape {tuple(mask.shape)} is not allowed; it must be one of {allowed}")
            if mask is not None and mask.dtype != torch.bool and not mask.is_floating_point():
                raise TypeError(f"{name} must be bool or floating-point, got {mask.dtype}; True hides a key")

    def _batch_first(self, states: Tensor) -> Tensor:
        """States [N, length, E] from the caller's layout; applied again, it restores that layout."""
        return states if self.batch_first else states.transpose(0, 1)

    def _by_head(self, states: list[Tensor]) -> list[Tensor]:
        """The projections of query, key and value, [N, heads, length, E of a head] each."""
        separate = self.q_proj_weight, self.k_proj_weight, self.v_proj_weight
        matrices = separate if self.in_proj_weight is None else self.in_proj_weight.chunk(3)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        projected = [linear(*arguments) for arguments in zip(states, matrices, biases, strict=True)]
        heads = self.num_heads, self.head_dim
        return [tensor.reshape(*tensor.shape[:-1], *heads).transpose(1, 2) for tensor in projected]


def _merged(masks: list[Tensor], dtype: torch.dtype) -> Tensor | None:
    """One mask for `attend`, from torch's masks: bool, True where a key takes no part, or numbers added to scores."""
    if not masks:
        return None
    if all(mask.dtype == torch.bool for mask in masks):
        return ~functools.reduce(torch.logical_or, masks)
    added = [
        mask.new_zeros(mask.shape, dtype=dtype).masked_fill(mask, -torch.inf) if mask.dtype == torch.bool else mask
        for mask in masks
    ]
    return functools.reduce(torch.add, added)
