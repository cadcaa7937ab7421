"""The gradients of SharMiX attention in two launches: by queries and orders, then by keys and values. No atomics.

With G the gradient by the output, dp = G Vᵀ, a = p^(2−q), A = Σ a, S = e^((1−q) R_q), T = T₀ e^((q−r) R_q) and
κ = (r − q)/(q − 1), the gradient by the scaled scores is

    dz = [a (dp − d) − η X (p − a/A)]/T,   d = Σ a dp/A,   X = Σ p dp − d,   η = κ q/((q − 1) S + κ q (S − 1/A)).

Both kernels compute p and a again, over the blocks of keys that the forward pass listed. With w measured in units of
n₁^(q−1) they are w^β and w^(β−1), so that dz = a (c₀ dp + c₁ − c₂ w) with three numbers for each query.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from sharmix._operators.triton.attention_forward import (
    Line,
    block_of,
    line_of,
    load_tile,
    log_of,
    product,
    rounded,
    scalars_of,
    scores_of,
    store_tile,
    weights,
)
from sharmix._operators.triton.elementary import log1p, sum_of_four


class Above(NamedTuple):
    """The output and its gradient, [batch, heads, rows, value head]."""

    output: Any
    gradient: Any


class Factors(NamedTuple):
    """Of a block of queries: the gradient by the output, d, c₀, c₁, c₂, and 1/A or, where β is not known, 1/A − 1."""

    above: Any
    centre: Any
    by_weight: Any
    constant: Any
    by_w: Any
    ratio: Any


@triton.jit
def queries_backward(inputs, orders, above, kept, lists, by_queries, numbers, by_orders, heads, KIND: tl.constexpr):
    """Writes the gradient by the queries, and that by q, r and T₀ of each query, [3, heads, rows], if it is wanted.

    `numbers` [7, heads, rows] get what `keys_backward` needs of a query: its line of w, and c₀, c₁ and c₂.
    """
    query_blocks, key_blocks = tl.cdiv(inputs.rows, KIND.rows), tl.cdiv(inputs.columns, KIND.columns)
    head = (tl.program_id(0) // query_blocks).to(tl.int64)
    start = (query_blocks - 1 - tl.program_id(0) % query_blocks) * KIND.rows
    block, scalars = block_of(inputs, head, start, KIND), scalars_of(inputs, orders, head)
    q, r, temperature, delta, power, scale = scalars
    inside, at = block.row < inputs.rows, head * inputs.rows + block.row
    stride = tl.cast(heads, tl.int64) * inputs.rows
    y = tl.load(kept.numbers + at, mask=inside, other=0.0)
    top = tl.load(kept.numbers + at + stride, mask=inside, other=float("inf"))
    less = tl.load(kept.numbers + at + 2 * stride, mask=inside, other=0.0)
    total = tl.load(kept.numbers + at + 3 * stride, mask=inside, other=1.0)
    power_u = tl.load(kept.numbers + at + 4 * stride, mask=inside, other=0.0)
    none = top == float("inf")
    top = tl.where(none, 0.0, top)
    gradient = _load(above.gradient, head, start, inputs, KIND)
    output, spread = _load(above.output, head, start, inputs, KIND), _load(kept.spread, head, start, inputs, KIND)
    # As a difference of two rounded outputs, X would lose what 1/(q − 1)² magnifies.
    x = -delta * tl.sum(gradient.to(tl.float32) * spread.to(tl.float32), 1)
    centre = tl.sum(gradient.to(tl.float32) * output.to(tl.float32), 1) - x
    log_total, n0 = tl.log(total), total + less
    renyi, log_shift = log_total - log1p(power_u / total) / delta, -delta * log_total
    shift, a_sum, s = tl.exp(log_shift), n0 * tl.exp((q - 2) * log_total), tl.exp(-delta * renyi)
    heat = tl.exp((q - r) * renyi)  # T/T₀
    difference = shift * (power_u / total + less / n0)  # S − 1/A
    kappa = (r - q) / delta
    eta = kappa * q / (delta * s + kappa * q * difference)
    slope, offset = line_of(y, top, scalars, KIND)
    if KIND.beta != 0:
        slope *= shift
        if not KIND.is_exact:
            offset *= shift
    by_weight = tl.where(none, 0.0, scale / heat)
    constant, by_w = (eta * x / a_sum - centre) * by_weight, eta * x * by_weight
    tl.store(numbers + at, tl.where(none, 0.0, slope), mask=inside)
    tl.store(numbers + at + stride, tl.where(none, 0.0, offset), mask=inside)
    tl.store(numbers + at + 2 * stride, by_weight, mask=inside)
    tl.store(numbers + at + 3 * stride, constant, mask=inside)
    tl.store(numbers + at + 4 * stride, by_w, mask=inside)
    tl.store(numbers + at + 5 * stride, tl.where(none, 0.0, shift), mask=inside)
    tl.store(numbers + at + 6 * stride, log_shift, mask=inside)
    line = Line(slope[:, None], offset[:, None], shift[:, None], log_shift[:, None], power)
    ratio = less / n0 if KIND.beta == 0 else 1 / a_sum
    factors = Factors(gradient, centre[:, None], by_weight[:, None], constant[:, None], by_w[:, None], ratio[:, None])
    index = head * query_blocks + start // KIND.rows
    loops = lists.blocks + index * key_blocks, tl.load(lists.counts + index * 2 + 1), tl.load(lists.counts + index * 2)
    by_query, h, both, along, excess = _over_keys(block, loops, line, factors, by_orders is not None, KIND)
    store_tile(by_queries, head, start, inputs.rows, by_query, KIND.head, KIND.width, KIND.rows)
    if by_orders is not None:
        # −Σ p log p, and it by 1/A with Σ p^q log p. `excess` is X again, from weights that are not rounded.
        entropy, both, along = -h / delta, both / delta, along / delta
        of_temperature = (delta + kappa * q * difference / s) / heat
        both_slopes = (1 + kappa) * renyi + kappa / s * (both - entropy / a_sum - q / delta * both)
        by_q = -along / delta - excess * (both_slopes - 1 / delta) / (of_temperature * heat)
        by_r, by_temperature = excess / heat * renyi / of_temperature, -excess / (heat * of_temperature * temperature)
        tl.store(by_orders + at, tl.where(none, 0.0, by_q), mask=inside)
        tl.store(by_orders + at + stride, tl.where(none, 0.0, by_r), mask=inside)
        tl.store(by_orders + at + 2 * stride, tl.where(none, 0.0, by_temperature), mask=inside)


@triton.jit
def _load(matrix, head, start, inputs, KIND: tl.constexpr):
    """The rows of a block in a matrix like the output."""
    first = head * inputs.rows
    return load_tile(matrix, first, start, inputs.rows, KIND.value_head, KIND.value_width, KIND.rows, True)


@triton.jit
def _over_keys(block, loops, line, factors, HAS_ORDERS: tl.constexpr, KIND: tl.constexpr):
    """Σ dz K; and for the orders (q − 1) Σ p log p, and that of p log p (p^(q−1) − 1/A), of p log p (dp − d), and X."""
    chosen, unmasked, count = loops
    zero = tl.full([KIND.rows], 0, tl.float32)
    by_query, h, both, along, excess = tl.full([KIND.rows, KIND.width], 0, tl.float32), zero, zero, zero, zero
    for MASKED in tl.static_range(2):
        for place in range(unmasked * MASKED, count if MASKED else unmasked):
            start = tl.load(chosen + place).to(tl.int32) * KIND.columns
            keys, scores = scores_of(block, start, KIND, MASKED)
            values = load_tile(
                block.value, 0, start, block.columns, KIND.value_head, KIND.value_width, KIND.columns, MASKED
            )
            by_p = product(factors.above, tl.trans(values), None, KIND)
            u, w, base, log_w = weights(scores, line, KIND)
            by_score = base * (factors.by_weight * by_p + factors.constant - factors.by_w * w)
            by_query = product(rounded(by_score, keys.dtype), keys, by_query, KIND)
            if HAS_ORDERS:
                if KIND.beta == 0:
                    over = (u + factors.ratio) * line.shift
                else:
                    log_w, over = log_of(tl.where(w > 0, w, 1.0), KIND.is_exact), w - factors.ratio
                part, centred = base * w * log_w, by_p - factors.centre
                more = sum_of_four(part, part * over, part * centred, base * over * centred, 1)
                h, both, along, excess = h + more[0], both + more[1], along + more[2], excess + more[3]
    return by_query, h, both, along, excess


@triton.jit
def keys_backward(
    inputs, orders, gradient, lists, columns, by_keys, by_values, numbers, heads,
    KIND: tl.constexpr, AT_ONCE: tl.constexpr,
):  # fmt: skip
    """Writes the gradients by keys and values, summed over the heads of a group, AT_ONCE queries at a time.

    `columns` is memory for lists of the blocks of queries that use a block of keys, [heads, key blocks, query blocks].
    """
    query_blocks, key_blocks = tl.cdiv(inputs.rows, KIND.rows), tl.cdiv(inputs.columns, KIND.columns)
    other = (tl.program_id(0) // key_blocks).to(tl.int64)
    number = tl.program_id(0) % key_blocks  # with a causal mask the first keys have most queries
    start = number * KIND.columns
    first, key = other * inputs.columns, start + tl.arange(0, KIND.columns)
    keys = load_tile(inputs.key, first, start, inputs.columns, KIND.head, KIND.width, KIND.columns, True)
    values = load_tile(
        inputs.value, first, start, inputs.columns, KIND.value_head, KIND.value_width, KIND.columns, True
    )
    seen = key < inputs.columns
    if KIND.has_mask:
        mask = inputs.mask + other * inputs.group // inputs.heads * inputs.columns
        seen = seen & (tl.load(mask + key, mask=seen, other=0) != 0)
    by_key = tl.full([KIND.columns, KIND.width], 0, tl.float32)
    by_value = tl.full([KIND.columns, KIND.value_width], 0, tl.float32)
    for member in range(inputs.group):
        head = other * inputs.group + member
        chosen = columns + (head * key_blocks + number) * query_blocks
        count, masked = _list_queries(
            lists.used + head * query_blocks * key_blocks + number, chosen, inputs, start, KIND
        )
        parts: tl.constexpr = KIND.rows // AT_ONCE
        loops = chosen, masked * parts, count * parts
        sums, of_head = (by_key, by_value), (numbers + head * inputs.rows, tl.cast(heads, tl.int64) * inputs.rows)
        power = scalars_of(inputs, orders, head)[4]
        by_key, by_value = _over_queries(
            inputs, gradient, keys, values, key, head, loops, of_head, power, sums, KIND, AT_ONCE
        )
    by_key, by_value = tl.where(seen[:, None], by_key, 0.0), tl.where(seen[:, None], by_value, 0.0)
    store_tile(by_keys, other, start, inputs.columns, by_key, KIND.head, KIND.width, KIND.columns)
    store_tile(by_values, other, start, inputs.columns, by_value, KIND.value_head, KIND.value_width, KIND.columns)


@triton.jit
def _list_queries(used, chosen, inputs, start, KIND: tl.constexpr):
    """List the blocks of queries that use the keys from `start` on: how many, and how many, the first, need a mask."""
    query_blocks, key_blocks = tl.cdiv(inputs.rows, KIND.rows), tl.cdiv(inputs.columns, KIND.columns)
    count, masked, first = 0, 0, 0
    if KIND.is_causal:
        first = start // KIND.rows
    for begin in range(first, query_blocks, 64):
        number = begin + tl.arange(0, 64)
        uses = tl.load(used + number.to(tl.int64) * key_blocks, mask=number < query_blocks, other=0).to(tl.int32)
        tl.store(chosen + count + tl.cumsum(uses, 0) - 1, number.to(tl.int16), mask=uses > 0)
        count += tl.sum(uses, 0)
        if KIND.is_causal:
            masked += tl.sum(tl.where(number * KIND.rows < start + KIND.columns - 1, uses, 0), 0)
    tl.debug_barrier()
    return count, masked


@triton.jit
def _over_queries(
    inputs, gradient, keys, values, key, head, loops, of_head, power, sums, KIND: tl.constexpr, AT_ONCE: tl.constexpr
):
    """Adds dzᵀ Q and pᵀ G of a head. Scores are [keys, queries], so that p and dz are operands as they are."""
    chosen, masked, count = loops
    numbers, stride = of_head
    by_key, by_value = sums
    parts: tl.constexpr = KIND.rows // AT_ONCE
    for UNMASKED in tl.static_range(0 if KIND.is_causal else 1, 2):
        for place in range(masked * UNMASKED, count if UNMASKED else masked):
            start = tl.load(chosen + place // parts).to(tl.int32) * KIND.rows + place % parts * AT_ONCE
            row = start + tl.arange(0, AT_ONCE)
            at, inside = numbers + row, row < inputs.rows
            first = head * inputs.rows
            queries = load_tile(inputs.query, first, start, inputs.rows, KIND.head, KIND.width, AT_ONCE, True)
            above = load_tile(gradient, first, start, inputs.rows, KIND.value_head, KIND.value_width, AT_ONCE, True)
            slope = tl.load(at, mask=inside, other=0.0)
            offset = tl.load(at + stride, mask=inside, other=0.0)
            by_weight = tl.load(at + 2 * stride, mask=inside, other=0.0)
            constant = tl.load(at + 3 * stride, mask=inside, other=0.0)
            by_w = tl.load(at + 4 * stride, mask=inside, other=0.0)
            shift, log_shift = slope, slope
            if KIND.is_exact or KIND.beta == 0:
                shift = tl.load(at + 5 * stride, mask=inside, other=0.0)
            if KIND.beta == 0:
                log_shift = tl.load(at + 6 * stride, mask=inside, other=0.0)
            scores = product(keys, tl.trans(queries), None, KIND)
            if not UNMASKED:
                scores = tl.where(key[:, None] <= row[None, :], scores, -float("inf"))
            line = Line(slope[None, :], offset[None, :], shift[None, :], log_shift[None, :], power)
            _, w, base, _ = weights(scores, line, KIND)
            by_value = product(rounded(base * w, above.dtype), above, by_value, KIND)
            by_p = product(values, tl.trans(above), None, KIND)
            by_score = base * (by_weight[None, :] * by_p + constant[None, :] - by_w[None, :] * w)
            by_key = product(rounded(by_score, queries.dtype), queries, by_key, KIND)
    return by_key, by_value
