"""Attention a block of queries at a time, which never holds all scores. The backward pass computes each block again.

1. A block is some queries of one head, or some heads with few scores each. Its scores, its weights and their product
   with the values are all that there is of it at one time.
2. Where few keys have a weight in a block, these keys alone give the product, and in the backward pass the same scores
   and weights again: a key without a weight can be left out, because the weights of the others are then the same.
3. The backward pass takes the derivatives of a block's weights from autograd, and adds up products.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import product, zip_longest
from math import inf, prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sharmix import functional
from sharmix._activation import Activation
from sharmix._arguments import widened
from sharmix._caller import is_last_derivative
from sharmix.activations import AlphaReLU, Entmax, Normmax, SharmaMittal, SharMiX, Softmax, Sparsemax

_BYTES = 1 << 20  # of the scores of a block, which then stay in the caches
_BYTES_ON_CUDA = 1 << 26  # where the host takes a millisecond for each block
_FEWEST_ROWS = 16  # of a block of one head; products of fewer are slow
_OWN = (Entmax, Normmax, SharMiX, Sparsemax)
_FEW = 0.25  # the share of keys below which products of these keys alone are faster

# (scores [heads, rows, keys], heads, rows, tensors) -> the weights of these heads and rows, of the same shape
BlockMap = Callable[[Tensor, slice, slice, Sequence[Tensor]], Tensor]


class Block(NamedTuple):
    """Some heads and rows, and the number of keys that they may see: the first ones."""

    number: int
    heads: slice
    rows: slice
    keys: int


class Plan(NamedTuple):
    """What attention needs besides queries, keys and values, each [heads, rows or keys, features]."""

    weigh: BlockMap
    leading: tuple[int, ...]  # the dimensions of which `heads` is the product
    mask: Tensor | None  # bool or numbers to add, [*leading, rows or 1, keys]
    is_causal: bool
    dropout: float
    seed: int  # of the weights that dropout leaves out

    def blocks(self, query: Tensor, key: Tensor) -> Iterator[Block]:
        (heads, rows, _), keys = query.shape, key.shape[1]
        most = (_BYTES_ON_CUDA if query.is_cuda else _BYTES) // (4 * max(keys, 1))  # rows of scores
        many, step = max(1, most // max(rows, 1)), min(rows, max(_FEWEST_ROWS, most))
        # The last rows first: under a causal mask their tensors are the largest, whose memory then serves all others.
        starts = product(range(0, heads, many), reversed(range(0, rows, max(step, 1))))
        for number, (head, start) in enumerate(starts):
            stop = min(start + step, rows)
            seen = min(keys, stop) if self.is_causal else keys
            yield Block(number, slice(head, min(head + many, heads)), slice(start, stop), seen)

    def mask_of(self, block: Block) -> Tensor | None:
        """The mask of a block, [heads, rows or 1, keys]."""
        if self.mask is None:
            return None
        rows = block.rows if self.mask.shape[-2] > 1 else slice(None)
        heads = (_place(head, self.leading) for head in range(block.heads.start, block.heads.stop))
        return torch.stack([self.mask[head][rows, : block.keys] for head in heads])

    def scores(self, block: Block, query: Tensor, keys: Tensor, blind: Tensor, used: Tensor | None) -> Tensor:
        """The scores of a block, −∞ for keys that a row does not see. `blind` are the rows that see none, 0 there."""
        scores = widened(query @ keys.mT)
        if self.is_causal:
            start = min(block.rows.start, block.keys)  # all rows see the keys before it
            places = torch.arange(start, block.keys, device=keys.device) if used is None else used
            hidden = places > torch.arange(block.rows.start, block.rows.stop, device=keys.device).unsqueeze(-1)
            (scores[..., start:] if used is None else scores).masked_fill_(hidden, -inf)
        if (mask := self.mask_of(block)) is not None:
            mask = mask if used is None else mask[..., used]
            scores = scores.masked_fill_(~mask, -inf) if mask.dtype == torch.bool else scores.add_(mask)
            scores.masked_fill_(blind[block.heads, block.rows].unsqueeze(-1), 0)  # else NaN; the output is filled
        return scores

    def kept(self, block: Block, weights: Tensor) -> Tensor:
        """The factors by which dropout multiplies the weights of a block, the same at each call."""
        generator = torch.Generator(weights.device).manual_seed(self.seed + block.number)
        chosen = torch.rand(weights.shape, generator=generator, device=weights.device) >= self.dropout
        return chosen.to(weights.dtype) * (1 / (1 - self.dropout) if self.dropout < 1 else 0)


def attention_in_blocks(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    activation: Activation,
    mask: Tensor | None,
    dropout: float,
    is_causal: bool,
    leading: tuple[int, ...],
) -> tuple[Tensor, Tensor]:
    """activation(Q Kᵀ + mask) V for scaled queries, and which queries see no key; their output may be anything.

    Args:
        query, key, value: [..., L, E], [..., S, E] and [..., S, Ev], whose leading dimensions broadcast to `leading`.
        activation: one that `can_be_in_blocks`.
        mask: broadcasts to [*leading, L, S]; bool, or numbers to add.

    Returns:
        The output [*leading, L, Ev] and bool [*leading, L, 1].
    """
    parts = [
        one.expand(*leading, *one.shape[-2:]).flatten(0, -3) if leading else one[None] for one in (query, key, value)
    ]
    weigh, tensors = _block_map(activation, leading)
    if mask is not None:
        mask = mask.expand(*leading, mask.shape[-2], key.shape[-2])
    seed = int(torch.randint(1 << 62, (), device="cpu")) if dropout else 0
    plan = Plan(weigh, leading, mask, is_causal, dropout, seed)
    output, blind = _Attention.apply(plan, *parts, *tensors)
    rows = query.shape[-2]
    return output.reshape(*leading, rows, value.shape[-1]), blind.reshape(*leading, rows, 1)


def can_be_in_blocks(activation: object, leading: tuple[int, ...], rows: int) -> bool:
    """Whether it is an activation of this library that weighs each row by itself, with orders that fit the rows."""
    if isinstance(activation, SharmaMittal) and type(activation) in _OWN:
        orders = [order for order in activation.orders() if isinstance(order, Tensor)]
        return not _has_hooks(activation) and all(_fits(tuple(order.shape), leading, rows) for order in orders)
    if isinstance(activation, AlphaReLU) and type(activation) is AlphaReLU:
        return activation.calibrated and not _has_hooks(activation)
    return isinstance(activation, Softmax) and type(activation) is Softmax and not _has_hooks(activation)


def _has_hooks(activation: Activation) -> bool:
    return bool(activation._forward_hooks or activation._forward_pre_hooks or activation._backward_hooks)


def _fits(shape: tuple[int, ...], leading: tuple[int, ...], rows: int) -> bool:
    """Whether an order of a shape broadcasts to the rows of all heads; if not, the map of all scores refuses it."""
    sizes = zip_longest(reversed(shape), reversed((*leading, rows, 1)), fillvalue=None)
    return all(own in (None, 1, of) for own, of in sizes)


def _block_map(activation: Activation, leading: tuple[int, ...]) -> tuple[BlockMap, list[Tensor]]:
    """The map of a block, and its orders that are tensors, [heads, rows or 1, 1]."""
    if isinstance(activation, AlphaReLU):
        alpha, tau = activation.alpha, activation.tau.detach().clone()  # which may change before the backward pass
        return lambda scores, heads, rows, tensors: functional.alpha_relu(scores, alpha=alpha, tau=tau), []
    if not isinstance(activation, SharmaMittal):
        return lambda scores, heads, rows, tensors: activation.probabilities(scores), []
    orders = activation.orders()
    tensors = [
        order.expand(*leading, order.shape[-2] if order.dim() > 1 else 1, 1).reshape(prod(leading), -1, 1)
        for order in orders
        if isinstance(order, Tensor)
    ]
    options: dict[str, Any] = {"nonconcave": activation.nonconcave, "masked_rows": activation.masked_rows}

    def weigh(scores: Tensor, heads: slice, rows: slice, given: Sequence[Tensor]) -> Tensor:
        some = iter([one[heads, rows] if one.shape[1] > 1 else one[heads] for one in given])
        own = [next(some) if isinstance(order, Tensor) else order for order in orders]
        return functional.sharmix(scores, *own, **options)

    return weigh, tensors


def _place(head: int, leading: tuple[int, ...]) -> tuple[int, ...]:
    """The indices of a head in the leading dimensions."""
    place = []
    for size in reversed(leading):
        head, index = divmod(head, size)
        place.append(index)
    return tuple(reversed(place))


class _Attention(torch.autograd.Function):
    """The output [heads, rows, features], and which rows see no key, bool [heads, rows]."""

    @staticmethod
    def forward(
        ctx: Any, plan: Plan, query: Tensor, key: Tensor, value: Tensor, *tensors: Tensor
    ) -> tuple[Tensor, Tensor]:
        output = value.new_empty(*query.shape[:2], value.shape[-1])
        blind = torch.zeros(query.shape[:2], dtype=torch.bool, device=query.device)
        ctx.plan, ctx.used = plan, []
        for block in plan.blocks(query, key):
            if (mask := plan.mask_of(block)) is not None:
                blind[block.heads, block.rows] = ~(mask if mask.dtype == torch.bool else mask != -inf).any(-1)
            own, keys, values = _of_block(block, query, key, value, None)
            weights = plan.weigh(plan.scores(block, own, keys, blind, None), block.heads, block.rows, tensors)
            if mask is not None:
                weights = weights.masked_fill(blind[block.heads, block.rows].unsqueeze(-1), 0)
            used = _used(weights)
            ctx.used.append(None if used is None else used.int())  # half the memory until the backward pass
            if used is not None:
                weights, values = weights[..., used], values[:, used]
            weights = weights * plan.kept(block, weights) if plan.dropout else weights
            output[block.heads, block.rows] = weights.to(value.dtype) @ values
        ctx.mark_non_differentiable(blind)
        ctx.save_for_backward(query, key, value, blind, *tensors)
        return output, blind

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, blind, *tensors = ctx.saved_tensors
        wanted = ctx.needs_input_grad[1:]
        gradients = _gradients if is_last_derivative(grad) else _differentiable_gradients
        found = iter(gradients(Kept(ctx.plan, ctx.used, blind, [query, key, value, *tensors]), grad, wanted))
        return None, *[next(found) if want else None for want in wanted]


class Kept(NamedTuple):
    """What the backward pass needs: `inputs` are query, key, value and the orders that are tensors."""

    plan: Plan
    used: Sequence[Tensor | None]  # the keys in use of each block, if they are few
    blind: Tensor
    inputs: Sequence[Tensor]

    def blocks(self) -> Iterator[tuple[Block, Tensor | None, Tensor, Tensor, Tensor]]:
        """Each block, its keys in use, and its queries, keys and values."""
        query, key, value, *_ = self.inputs
        for block, few in zip(self.plan.blocks(query, key), self.used, strict=True):
            used = None if few is None else few.long()
            yield block, used, *_of_block(block, query, key, value, used)


def _gradients(kept: Kept, grad: Tensor, wanted: Sequence[bool]) -> list[Tensor]:
    """The wanted gradients by query, key, value and the tensors."""
    plan, tensors = kept.plan, kept.inputs[3:]
    totals = [
        torch.zeros_like(one, dtype=torch.promote_types(one.dtype, torch.float32)) if want else None
        for one, want in zip(kept.inputs, wanted, strict=True)
    ]
    by_query, by_key, by_value = totals[:3]
    learned = [one.detach().requires_grad_(want) for one, want in zip(tensors, wanted[3:], strict=True)]
    slopes = [total for total in totals[3:] if total is not None]
    needs_scores = any(wanted[:2]) or bool(slopes)
    for block, used, own, keys, values in kept.blocks():
        above = grad[block.heads, block.rows]
        scores = plan.scores(block, own, keys, kept.blind, used).requires_grad_(needs_scores)
        with torch.set_grad_enabled(needs_scores):
            weights = plan.weigh(scores, block.heads, block.rows, learned)
        factors = plan.kept(block, weights) if plan.dropout else None
        if by_value is not None:
            after = weights.detach() if factors is None else weights.detach() * factors
            _add(by_value, block, used, after.to(values.dtype).mT @ above)
        if not needs_scores:
            continue
        by_weights = (above @ values.mT).to(weights.dtype)
        by_weights = by_weights if factors is None else by_weights * factors
        asked = [scores, *(one for one in learned if one.requires_grad)]
        by_scores, *parts = torch.autograd.grad(weights, asked, by_weights)
        for slope, part in zip(slopes, parts, strict=True):
            slope += part
        by_scores = by_scores.to(own.dtype)
        if by_query is not None:
            by_query[block.heads, block.rows] = (by_scores @ keys).to(by_query.dtype)
        if by_key is not None:
            _add(by_key, block, used, by_scores.mT @ own)
    return [total.to(one.dtype) for total, one in zip(totals, kept.inputs, strict=True) if total is not None]


def _differentiable_gradients(kept: Kept, grad: Tensor, wanted: Sequence[bool]) -> Sequence[Tensor]:
    """The same, of which torch knows the derivatives: the scores of all blocks are in memory."""
    plan, tensors = kept.plan, kept.inputs[3:]
    creates_graph, outputs = torch.is_grad_enabled(), defaultdict[int, list[Tensor]](list)
    with torch.enable_grad():
        for block, used, own, keys, values in kept.blocks():
            weights = plan.weigh(plan.scores(block, own, keys, kept.blind, used), block.heads, block.rows, tensors)
            weights = weights * plan.kept(block, weights) if plan.dropout else weights
            outputs[block.heads.start].append(weights.to(values.dtype) @ values)
        output = torch.cat([torch.cat(rows[::-1], 1) for rows in outputs.values()])
    asked = [one for one, want in zip(kept.inputs, wanted, strict=True) if want]
    return torch.autograd.grad(output, asked, grad, create_graph=creates_graph)


def _of_block(
    block: Block, query: Tensor, key: Tensor, value: Tensor, used: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The queries, keys and values of a block; `used` chooses some keys."""
    some = slice(0, block.keys) if used is None else used
    return query[block.heads, block.rows], key[block.heads, some], value[block.heads, some]


def _used(weights: Tensor) -> Tensor | None:
    """The keys with a weight in some row, [keys], if they are few; on a GPU the host would wait for their number."""
    if not weights.is_cpu or len(weights) > 1:
        return None
    used = (weights[0].amax(0) != 0).nonzero().squeeze(-1)  # no weight of ours is below 0
    return used if len(used) < _FEW * weights.shape[-1] else None


def _add(total: Tensor, block: Block, used: Tensor | None, part: Tensor) -> None:
    """Add the part of a block, [heads, keys, features]."""
    if used is None:
        total[block.heads, : block.keys] += part
    else:
        total[block.heads.start].index_add_(0, used, part[0].to(total.dtype))
