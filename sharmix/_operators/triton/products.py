"""The gradients of an output layer by hidden and weight, from `lists` of errors and from dense rows, in float32.

1. `hidden_of_lists` gathers rows of the weight for each row of hidden.
2. All lists of a batch, sorted by class, give the gradient of the weight: `weight_of_lists` gathers rows of hidden, and
   `add_pieces` adds what other programs have gathered for the same class. Each sum has one order: there are no atomics.
3. `hidden_of_dense_rows` and `weight_of_dense_rows` multiply matrices of the dense rows alone. The host launches them
   always, for it does not know the number of these rows; the programs that have none end at once.
"""

import os
from typing import Any, NamedTuple

import triton
import triton.language as tl

_INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")


class Pieces(NamedTuple):
    """The entries of all lists in the order of their classes, cut into pieces, at least one of each class.

    `order` has the places of the entries in the lists, and `starts` where each class begins there. `firsts`
    has the first piece of each class and the number of pieces; `classes` the class of each piece, or their number
    if there is no such piece.
    """

    order: Any
    starts: Any
    firsts: Any
    classes: Any


class Sums(NamedTuple):
    """The gradients by weight and bias, or another table of such rows; None for a bias that is not wanted."""

    weight: Any
    bias: Any


@triton.jit
def hidden_of_lists(lists, weight, by_hidden, features, BLOCK: tl.constexpr, AT_ONCE: tl.constexpr, ROOM: tl.constexpr):
    """Rows come first in the grid, blocks of features outside: so that a slice of the weight stays in the L2 cache."""
    index = tl.program_id(0).to(tl.int64)
    feature = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    count = tl.load(lists.counts + index)
    if count <= ROOM:
        total = tl.zeros([BLOCK], tl.float32)
        for start in range(0, count, AT_ONCE):
            entry = start + tl.arange(0, AT_ONCE)
            of = tl.load(lists.classes + index * ROOM + entry, mask=entry < count, other=0)
            error = tl.load(lists.errors + index * ROOM + entry, mask=entry < count, other=0.0)
            total += _gathered(weight, of, error, entry < count, feature, features)
        tl.store(by_hidden + index * features + feature, total, mask=feature < features)


@triton.jit
def weight_of_lists(
    lists, pieces, hidden, sums, more, constant, dense, classes, features,
    SIZE: tl.constexpr, BLOCK: tl.constexpr, AT_ONCE: tl.constexpr, ROOM: tl.constexpr,
):  # fmt: skip
    """The piece that is the first of its class goes to `sums`, others to `more`; `constant` is added to each class."""
    number = tl.program_id(0)
    feature = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    of = tl.load(pieces.classes + number)
    if of < classes:
        part = number - tl.load(pieces.firsts + of)
        start = tl.load(pieces.starts + of) + part * SIZE
        stop = tl.minimum(start + SIZE, tl.load(pieces.starts + of + 1))
        total, errors = tl.zeros([BLOCK], tl.float32), tl.zeros([AT_ONCE], tl.float32)
        for begin in range(start, stop, AT_ONCE):
            entry = begin + tl.arange(0, AT_ONCE)
            place = tl.load(pieces.order + entry, mask=entry < stop, other=0)
            error = tl.load(lists.errors + place, mask=entry < stop, other=0.0)
            total += _gathered(hidden, place // ROOM, error, entry < stop, feature, features)
            errors += error
        if part > 0:
            _write(more, number - of - 1, total, errors, feature, features, False)
        else:
            if constant is not None:
                total += tl.load(constant + feature, mask=feature < features, other=0.0)
            _write(sums, of, total, errors, feature, features, tl.load(dense.numbers + 1) > 0)


@triton.jit
def add_pieces(pieces, sums, more, classes_of_more, classes, features, BLOCK: tl.constexpr):
    """Adds the rows of `more` to those of their classes; the program of the first row of a class adds all of them."""
    number = tl.program_id(0)
    feature = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside, of = feature < features, tl.load(classes_of_more + number)
    if of < classes:
        first = tl.load(pieces.firsts + of) - of
        if number == first:
            total, errors = tl.zeros([BLOCK], tl.float32), tl.zeros([1], tl.float32)
            following = tl.load(pieces.firsts + of + 1) - of - 1
            for row in range(first, following):
                total += tl.load(more.weight + tl.cast(row, tl.int64) * features + feature, mask=inside, other=0.0)
                if more.bias is not None:
                    errors += tl.load(more.bias + row)
            _write(sums, of, total, errors, feature, features, True)


@triton.jit
def _gathered(table, rows, errors, is_entry, feature, features):
    """Σ error · row, over rows of a table that are loaded at the same time."""
    place = rows.to(tl.int64)[:, None] * features + feature[None, :]
    values = tl.load(table + place, mask=is_entry[:, None] & (feature < features)[None, :], other=0.0)
    return tl.sum(errors[:, None] * values.to(tl.float32), 0)


@triton.jit
def _write(sums, row, total, errors, feature, features, has_sum):
    """Write a row's sums, or add them to what is there."""
    to, inside = sums.weight + tl.cast(row, tl.int64) * features + feature, feature < features
    if has_sum:
        total += tl.load(to, mask=inside, other=0.0)
    tl.store(to, total, mask=inside)
    if sums.bias is not None:  # noqa: SIM102 (of an `and` Triton would compile both parts)
        if tl.program_id(1) == 0:
            error = tl.sum(errors, 0)
            if has_sum:
                error += tl.load(sums.bias + row)
            tl.store(sums.bias + row, error)


@triton.jit
def hidden_of_dense_rows(
    gradients, weight, by_hidden, dense, classes, features, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):
    count = tl.load(dense.numbers + 1) - tl.load(dense.numbers)
    entry = tl.program_id(1) * M + tl.arange(0, M)
    if tl.program_id(1) * M < count:
        feature = tl.program_id(0) * N + tl.arange(0, N)
        is_row, inside = (entry < count)[:, None], (feature < features)[None, :]
        rows = tl.load(dense.rows + entry, mask=entry < count, other=0).to(tl.int64)[:, None]
        total = tl.zeros([M, N], tl.float32)
        for start in range(0, classes, K):
            of = start + tl.arange(0, K)
            is_class = of < classes
            a = tl.load(gradients + rows * classes + of[None, :], mask=is_row & is_class[None, :], other=0.0)
            place = of.to(tl.int64)[:, None] * features + feature[None, :]
            b = tl.load(weight + place, mask=is_class[:, None] & inside, other=0.0)
            total = _product(a, b, total)
        tl.store(by_hidden + rows * features + feature[None, :], total, mask=is_row & inside)


@triton.jit
def weight_of_dense_rows(
    gradients, hidden, sums, dense, classes, features, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):
    """Adds the sums of a chunk; the first chunk that has dense rows writes them, so there need be no zeros."""
    before = tl.load(dense.numbers)
    count = tl.load(dense.numbers + 1) - before
    if count > 0:
        of, feature = tl.program_id(1) * M + tl.arange(0, M), tl.program_id(0) * N + tl.arange(0, N)
        is_class, inside = (of < classes)[None, :], (feature < features)[None, :]
        total, errors = tl.zeros([M, N], tl.float32), tl.zeros([M], tl.float32)
        for start in range(0, count, K):
            entry = start + tl.arange(0, K)
            is_row = (entry < count)[:, None]
            rows = tl.load(dense.rows + entry, mask=entry < count, other=0).to(tl.int64)[:, None]
            a = tl.load(gradients + rows * classes + of[None, :], mask=is_row & is_class, other=0.0)
            b = tl.load(hidden + rows * features + feature[None, :], mask=is_row & inside, other=0.0)
            total = _product(tl.trans(a), b, total)
            if sums.bias is not None:
                errors += tl.sum(a.to(tl.float32), 0)
        place = sums.weight + of.to(tl.int64)[:, None] * features + feature[None, :]
        mask = (of < classes)[:, None] & inside
        if before > 0:
            total += tl.load(place, mask=mask, other=0.0)
        tl.store(place, total, mask=mask)
        if sums.bias is not None:  # noqa: SIM102 (of an `and` Triton would compile both parts)
            if tl.program_id(0) == 0:
                if before > 0:
                    errors += tl.load(sums.bias + of, mask=of < classes, other=0.0)
                tl.store(sums.bias + of, errors, mask=of < classes)


@triton.jit
def _product(a, b, total):
    if _INTERPRETED:  # it would multiply the bits of bfloat16
        total = tl.dot(a.to(tl.float32), b.to(tl.float32), total)
    else:
        total = tl.dot(a, b, total, input_precision="ieee")
    return total
