"""SharMiX attention in one launch that stores no score, and what its backward pass shares.

A program takes a block of queries, then the next of its share.

1. The largest score of each query in each block of keys is kept in memory of the program.
2. Newton's method solves all queries of a block at the same time, by sums over the keys. Before each evaluation
   `_list_blocks` lists the blocks of keys in reach of some query; no other is read.
3. The last evaluation is the output: it sums w^β V and w^(β−1) V, too. By d(w^β)/dy = β (w^(β−1) − w^β) these correct
   the output, to first order, for the step that is left.

Scores are the products Q Kᵀ themselves. With y measured from log T₀,

    w = (1 + (q − 1) e^(−y) scale/T₀ (score − largest))₊,   n₀ = Σ w^(β−1),   n₁ = Σ w^β,   n₂ = Σ w^(β+1).

Blocks of keys that need a mask are the last of a list and have a loop of their own, so that most scores are compared
with nothing.
"""

import os
from typing import Any, NamedTuple

import triton
import triton.language as tl

from sharmix._operators.triton import equation
from sharmix._operators.triton.elementary import largest_of_rows, sum_of_four

_INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")
_ROUNDING = tl.constexpr(2e-6)  # of r = 2 − 1/q in float32
_LOG_2 = tl.constexpr(0.6931471805599453)
_NEAR = tl.constexpr(5e-7)  # a step, relative to y, that float32 does not tell from 0


class Inputs(NamedTuple):
    """Queries [batch, heads, rows, head], keys [batch, heads/group, columns, head], and values, alike.

    `mask` is uint8 [batch, columns], 0 for a key that no query sees; None: all are seen. `scale` is above 0.
    """

    query: Any
    key: Any
    value: Any
    mask: Any
    scale: float
    heads: int
    group: int
    rows: int
    columns: int


class Kind(NamedTuple):
    """What a kernel is compiled for.

    1/(q − 1) as in `equation`; the sizes of heads, and the powers of two that hold them; the queries (`rows`) and keys
    (`columns`) of a block. `is_exact` is True for float32, whose products have a precision of their own.
    """

    beta: int
    is_causal: bool
    has_mask: bool
    is_exact: bool
    precision: str
    head: int
    value_head: int
    width: int
    value_width: int
    rows: int
    columns: int


class Lists(NamedTuple):
    """The blocks of keys that some query of a block uses.

    `blocks` is int16 [heads, query blocks, key blocks]; `counts` [heads, query blocks, 2]: how many, and how many of
    them, the first ones, need no mask; `used` is 0 or 1, [heads, query blocks, key blocks].
    """

    blocks: Any
    counts: Any
    used: Any


class Kept(NamedTuple):
    """For the backward pass: (Σ w^(β−1) V/n₀ − output)/(q − 1), and five numbers of each query, [5, heads, rows].

    These are y, the largest score (∞ where a query sees no key), n₀ − n₁, n₁ and n₂ − n₁.
    """

    spread: Any
    numbers: Any


class Block(NamedTuple):
    """Some queries and their rows; keys, values and mask of their head, if it has one; the number of keys."""

    query: Any
    row: Any
    key: Any
    value: Any
    mask: Any
    columns: Any


class Line(NamedTuple):
    """w of a score, and the power β − 1: see `line_of` and `weights`."""

    slope: Any
    offset: Any
    shift: Any
    log_shift: Any
    power: Any


@triton.jit
def attention_forward(inputs, orders, output, kept, lists, tops, tiles, KIND: tl.constexpr, TOLERANCE: tl.constexpr):
    """Writes the output, and if wanted `kept` and `lists`; `tops` is memory, [programs, key blocks, KIND.rows].

    Where `kept` is None, `lists.blocks` is [programs, key blocks].
    """
    query_blocks, key_blocks = tl.cdiv(inputs.rows, KIND.rows), tl.cdiv(inputs.columns, KIND.columns)
    program = tl.program_id(0).to(tl.int64)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        head = (tile // query_blocks).to(tl.int64)
        number = query_blocks - 1 - tile % query_blocks  # the longest of a head first
        start = number * KIND.rows
        block, scalars = block_of(inputs, head, start, KIND), scalars_of(inputs, orders, head)
        reach, whole = inputs.columns, inputs.columns // KIND.columns
        if KIND.is_causal:
            reach, whole = tl.minimum(reach, start + KIND.rows), tl.minimum(whole, (start + 1) // KIND.columns)
        if KIND.has_mask:
            whole = 0
        index, used = program, None
        if kept is not None:
            index = head * query_blocks + number
            used = lists.used + index * key_blocks
        chosen = lists.blocks + index * key_blocks
        plan = tops + program * key_blocks * KIND.rows, chosen, tl.cdiv(reach, KIND.columns), whole
        top = _largest(block, plan, KIND)
        none = top == -float("inf")
        top = tl.where(none, 0.0, top)
        y = _solved(block, plan, top, none, scalars, KIND, TOLERANCE)
        slope, offset = line_of(y, top, scalars, KIND)
        count, unmasked = _list_blocks(plan, _bound(slope, top, none), used, KIND)
        both = tl.full([KIND.rows, KIND.value_width], 0, tl.float32)
        line, loops = Line(slope[:, None], offset[:, None], 1.0, 0.0, scalars[4]), (chosen, unmasked, count)
        a, b, c, d, by_p, by_base = _outputs(block, loops, both, line, kept is not None, KIND)
        scalars = scalars_of(inputs, orders, head)  # again, so that the loops before hold none of them in registers
        less, total, power_u, _, step = _point(y, a, b, c, d, none, scalars, KIND)
        if kept is not None:
            delta = scalars[3]
            step = tl.where(none, 0.0, tl.minimum(tl.maximum(step, -TOLERANCE), TOLERANCE))
            spread = (by_base - by_p * (less / total)[:, None]) / (delta * (total + less))[:, None]
            by_p += (step / delta)[:, None] * by_base
            total += step / delta * less
            power_u -= step * ((1 / delta + 1) * power_u + less / delta)
            store_tile(kept.spread, head, start, inputs.rows, spread, KIND.value_head, KIND.value_width, KIND.rows)
            at = kept.numbers + head * inputs.rows + block.row
            stride = tl.cast(tiles, tl.int64) // query_blocks * inputs.rows  # Triton makes a constant of one tile
            inside = block.row < inputs.rows
            tl.store(at, y + step, mask=inside)
            tl.store(at + stride, tl.where(none, float("inf"), top), mask=inside)
            tl.store(at + 2 * stride, less, mask=inside)
            tl.store(at + 3 * stride, total, mask=inside)
            tl.store(at + 4 * stride, power_u, mask=inside)
            tl.store(lists.counts + index * 2, count)
            tl.store(lists.counts + index * 2 + 1, unmasked)
        q = scalars[0]
        by_p = tl.where(q == q, by_p, float("nan")) / total[:, None]
        store_tile(output, head, start, inputs.rows, by_p, KIND.value_head, KIND.value_width, KIND.rows)


@triton.jit
def scalars_of(inputs, orders, head):
    """q, r, T₀, q − 1, 1/(q − 1) − 1 and scale/T₀ of a head. q is NaN where float32 is not enough."""
    order = (head % inputs.heads).to(tl.int32)
    q, r, temperature, delta, power = equation.load_orders(orders, order, inputs.columns, tl.float32)
    allowed = (q <= 2) & (r * q >= 2 * q - 1 - _ROUNDING * q)
    return tl.where(allowed, q, float("nan")), r, temperature, delta, power, inputs.scale / temperature


@triton.jit
def block_of(inputs, head, start, KIND: tl.constexpr):
    """The `Block` of queries from `start` on."""
    other, mask = head // inputs.group * inputs.columns, inputs.key  # Triton 3.6 returns no None
    if KIND.has_mask:
        mask = inputs.mask + head // inputs.heads * inputs.columns
    queries = load_tile(inputs.query, head * inputs.rows, start, inputs.rows, KIND.head, KIND.width, KIND.rows, True)
    keys, values = inputs.key + other * KIND.head, inputs.value + other * KIND.value_head
    return Block(queries, start + tl.arange(0, KIND.rows), keys, values, mask, inputs.columns)


@triton.jit
def load_tile(
    matrix, first, start, rows, HEAD: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, HAS_EDGE: tl.constexpr
):
    """[BLOCK, WIDTH] of a matrix [rows, HEAD] that begins at row `first`; past its last row that row, past HEAD 0."""
    row, place = start + tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    if HAS_EDGE:
        row = tl.minimum(row, rows - 1)
    at = matrix + first * HEAD + row[:, None] * HEAD + place[None, :]
    return tl.load(at) if HEAD == WIDTH else tl.load(at, mask=place[None, :] < HEAD, other=0.0)


@triton.jit
def store_tile(matrix, head, start, rows, values, HEAD: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Write [BLOCK, WIDTH] to the matrix [rows, HEAD] of a head."""
    row, place = start + tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    at = matrix + head * rows * HEAD + row[:, None] * HEAD + place[None, :]
    inside = (row < rows)[:, None] & (place < HEAD)[None, :]
    tl.store(at, rounded(values, matrix.dtype.element_ty), mask=inside)


@triton.jit
def product(a, b, total, KIND: tl.constexpr):
    if _INTERPRETED:  # it would multiply the bits of bfloat16
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, total, input_precision=KIND.precision)


@triton.jit
def rounded(values, TYPE: tl.constexpr):
    """The values in a dtype."""
    if _INTERPRETED and tl.bfloat16 == TYPE:  # it would cut bits off
        bits = values.to(tl.int32, bitcast=True)
        bits += 0x7FFF + ((bits >> 16) & 1)
        values = bits.to(tl.float32, bitcast=True)
    return values.to(TYPE)


@triton.jit
def log_of(w, IS_EXACT: tl.constexpr):
    """log w; in half precision by one instruction, with an error of 2^−22."""
    if IS_EXACT or _INTERPRETED:
        found = tl.log(w)
    else:
        asm: tl.constexpr = "lg2.approx.ftz.f32 $0, $1;"
        found = tl.inline_asm_elementwise(asm, "=f,f", [w], dtype=tl.float32, is_pure=True, pack=1) * _LOG_2
    return found


@triton.jit
def _log1p(u, IS_EXACT: tl.constexpr):
    """For −1 < u ≤ 0, without a division: what 1 + u rounds away counts near u = 0 alone, where 1/(1 + u) is 1."""
    total = 1 + u
    if IS_EXACT:
        found = tl.log(total) + (u - (total - 1))
    else:
        near = u * (1 + u * (-1 / 2 + u * (1 / 3 + u * (-1 / 4 + u * (1 / 5)))))
        found = tl.where(u > -0.0625, near, log_of(total, IS_EXACT))
    return found


@triton.jit
def line_of(y, top, scalars, KIND: tl.constexpr):
    """The slope of w, and the largest score; in half precision where β is known, w at the score 0 in its place.

    That takes an instruction less for each score.
    """
    slope, offset = equation.scale_at(y, scalars[3]) * scalars[5], top
    if not KIND.is_exact and KIND.beta != 0:
        offset = 1 - top * slope
    return slope, offset


@triton.jit
def weights(scores, line, KIND: tl.constexpr):
    """u = w/shift − 1 where β is not known, w, w^(β−1), and log w where β is not known.

    The shift is 1, or in the backward pass n₁^(1−q), so that w^β is p.
    """
    if KIND.beta == 0:
        u = tl.maximum((scores - line.offset) * line.slope, -1.0)
        w, inside = (u + 1) * line.shift, u > -1
        log_w = _log1p(tl.where(inside, u, 0.0), KIND.is_exact) + line.log_shift
        base = tl.where(inside, tl.exp(line.power * log_w), 0.0)
    else:
        if KIND.is_exact:
            w = tl.maximum((scores - line.offset) * line.slope + line.shift, 0.0)
        else:
            w = tl.maximum(scores * line.slope + line.offset, 0.0)
        u, log_w = w, w
        if KIND.beta == 1:
            base = tl.where(w > 0, 1.0, 0.0)
        elif KIND.beta == 2:
            base = w
        elif KIND.beta == 3:
            base = w * w
        else:
            base = w * w * w
    return u, w, base, log_w


@triton.jit
def scores_of(block, start, KIND: tl.constexpr, MASKED: tl.constexpr):
    """The keys from `start` on, and the scores, [rows, columns], −∞ where a query does not see a key."""
    keys = load_tile(block.key, 0, start, block.columns, KIND.head, KIND.width, KIND.columns, MASKED)
    scores = product(block.query, tl.trans(keys), None, KIND)
    if MASKED:
        column = start + tl.arange(0, KIND.columns)
        seen = column < block.columns
        if KIND.has_mask:
            seen = seen & (tl.load(block.mask + column, mask=seen, other=0) != 0)
        seen = seen[None, :]
        if KIND.is_causal:
            seen = seen & (column[None, :] <= block.row[:, None])
        scores = tl.where(seen, scores, -float("inf"))
    return keys, scores


@triton.jit
def _largest(block, plan, KIND: tl.constexpr):
    """The largest score of each query; those within each block of keys go to memory."""
    tops, blocks, whole = plan[0], plan[2], plan[3]
    top = tl.full([KIND.rows], -float("inf"), tl.float32)
    for MASKED in tl.static_range(2):
        for number in range(whole * MASKED, blocks if MASKED else whole):
            _, scores = scores_of(block, number * KIND.columns, KIND, MASKED)
            here = largest_of_rows(scores)
            tl.store(tops + number * KIND.rows + tl.arange(0, KIND.rows), here)
            top = tl.maximum(top, here, propagate_nan=tl.PropagateNan.ALL)
    return top


@triton.jit
def _bound(slope, top, none):
    """The score at which w is 0."""
    return tl.where(none, float("inf"), top - 1 / slope)


@triton.jit
def _list_blocks(plan, bound, used, KIND: tl.constexpr):
    """List the blocks where the largest score of some query is above its bound: how many, and how many need no mask."""
    tops, chosen, blocks, whole = plan
    count, unmasked, row = 0, 0, tl.arange(0, KIND.rows)
    tl.debug_barrier()  # what other threads wrote to `tops`, and their reads of the list before
    for start in range(0, blocks, 32):
        number = start + tl.arange(0, 32)
        at = tops + number[None, :] * KIND.rows + row[:, None]
        top = tl.load(at, mask=(number < blocks)[None, :], other=-float("inf"))
        reached = tl.max((top > bound[:, None]).to(tl.int32), 0)
        tl.store(chosen + count + tl.cumsum(reached, 0) - 1, number.to(tl.int16), mask=reached > 0)
        if used is not None:
            tl.store(used + number, reached.to(tl.int8), mask=number < blocks)
        count += tl.sum(reached, 0)
        unmasked += tl.sum(tl.where(number < whole, reached, 0), 0)
    tl.debug_barrier()
    return count, unmasked


@triton.jit
def _sums_of(u, w, base, KIND: tl.constexpr):
    """n₀, n₁, n₂ and nothing; where β is not known, the sums of `equation.terms`, which lose no digits near u = 0."""
    if KIND.beta == 0:
        part = base * u
        sums = sum_of_four(base * w, part, part * u, part * w, 1)
    else:
        sums = tl.sum(base, 1), tl.sum(base * w, 1), tl.sum(base * w * w, 1), tl.full([KIND.rows], 0, tl.float32)
    return sums


@triton.jit
def _point(y, a, b, c, d, none, scalars, KIND: tl.constexpr):
    """n₀ − n₁, n₁, n₂ − n₁, the residual and Newton's step, from `_sums_of` all keys."""
    q, r, _, delta, _, _ = scalars
    if KIND.beta == 0:
        total, base_u, base_uu, power_u = tl.where(none, 1.0, a), b, c, d
    else:
        total = tl.where(none, 1.0, b)
        base_u, power_u = tl.where(none, 0.0, b - a), tl.where(none, 0.0, c - b)
        base_uu = power_u - base_u
    _, _, _, residual, step = equation.point(y, q, r, delta, total, base_u, base_uu, power_u)
    return -base_u, total, power_u, residual, step


@triton.jit
def _solved(block, plan, top, none, scalars, KIND: tl.constexpr, TOLERANCE: tl.constexpr):
    """y of all queries, when the last step of each is at most the tolerance."""
    q, r, power = scalars[0], scalars[1], scalars[4]
    zero = tl.full([KIND.rows], 0, tl.float32)
    low, high = equation.bracket(q, r, block.columns)
    low, high = zero + low, zero + high
    y, worst, steps = high, tl.max(tl.where(none, 0.0, 1.0), 0), 0
    while (worst > TOLERANCE) & (steps < equation.MOST_STEPS):
        slope, offset = line_of(y, top, scalars, KIND)
        count, unmasked = _list_blocks(plan, _bound(slope, top, none), None, KIND)
        line, a, b, c, d = Line(slope[:, None], offset[:, None], 1.0, 0.0, power), zero, zero, zero, zero
        for MASKED in tl.static_range(2):
            for place in range(unmasked * MASKED, count if MASKED else unmasked):
                number = tl.load(plan[1] + place).to(tl.int32)
                _, scores = scores_of(block, number * KIND.columns, KIND, MASKED)
                u, w, base, _ = weights(scores, line, KIND)
                more = _sums_of(u, w, base, KIND)
                a, b, c, d = a + more[0], b + more[1], c + more[2], d + more[3]
        _, _, _, residual, step = _point(y, a, b, c, d, none, scalars, KIND)
        low, high, following = equation.following(y, step, residual, low, high, steps)
        step = tl.where(none, 0.0, following - y)
        worst = tl.max(tl.where(tl.abs(step) <= _NEAR * tl.abs(y), 0.0, tl.abs(step)), 0)
        y += step
        steps += 1
    return y


@triton.jit
def _outputs(block, loops, both, line, HAS_BASE: tl.constexpr, KIND: tl.constexpr):
    """`_sums_of` all keys, Σ w^β V and, if it is wanted, Σ (w^(β−1) − w^β) V."""
    chosen, unmasked, count = loops
    zero = tl.full([KIND.rows], 0, tl.float32)
    a, b, c, d, by_p, by_base = zero, zero, zero, zero, both, both
    for MASKED in tl.static_range(2):
        for place in range(unmasked * MASKED, count if MASKED else unmasked):
            start = tl.load(chosen + place).to(tl.int32) * KIND.columns
            _, scores = scores_of(block, start, KIND, MASKED)
            values = load_tile(
                block.value, 0, start, block.columns, KIND.value_head, KIND.value_width, KIND.columns, MASKED
            )
            u, w, base, _ = weights(scores, line, KIND)
            more = _sums_of(u, w, base, KIND)
            a, b, c, d = a + more[0], b + more[1], c + more[2], d + more[3]
            by_p = product(rounded(base * w, values.dtype), values, by_p, KIND)
            if HAS_BASE:
                difference = -base * u if KIND.beta == 0 else base - base * w
                by_base = product(rounded(difference, values.dtype), values, by_base, KIND)
    return a, b, c, d, by_p, by_base
