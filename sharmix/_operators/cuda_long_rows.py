"""Rows that are too long and too few for one CUDA program each: many programs sum over a row together.

Each of Newton's steps takes two launches: one for the partial sums over spans of the rows, one for what follows from
them in each row. The output then needs no more sums. The backward pass is plain torch, which uses the whole device.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from sharmix._mathematics.sensitivity import ConjugateSensitivity
from sharmix._mathematics.series import expm1_ratio
from sharmix._operators import any_device, cuda
from sharmix._operators.orders import Orders, Slopes, columns
from sharmix._targets import checked_classes

_FEW = 64  # rows, which would leave most of a GPU idle
_LONG = 65536  # classes, from which on launches cost less than they save
_SPAN = 2048  # classes, over which one program sums
_ROUNDS_TOGETHER = 4  # of Newton's steps, before the host waits to see whether all rows are done

# The columns of the states of rows: Newton's point and bracket, what `_point` and `_sums` said there, and whether it is
# the last one.
_Y, _LOW, _HIGH, _STEP, _TOTAL, _BASE_U, _MEAN, _RENYI, _DONE = (tl.constexpr(column) for column in range(9))
_COLUMNS = tl.constexpr(9)


@triton.jit
def _partial_sums(
    logits, largest, states, sums, classes, spans, q, temperature, BLOCK: tl.constexpr, COMPUTE: tl.constexpr
):
    index, span = tl.program_id(0).to(tl.int64), tl.program_id(1)
    state = states + index * _COLUMNS
    if tl.load(state + _DONE) == 0:
        delta = tl.maximum(tl.load(q + index) - 1, cuda._LEAST_DELTA)
        top, unit = tl.load(largest + index).to(tl.float64), 1 / tl.load(temperature + index)
        scale, start = delta * tl.exp(-tl.load(state + _Y)), span * BLOCK
        row = logits + index * classes
        cached = cuda._loaded(row, start, classes, -float("inf"), BLOCK).to(tl.float32)
        total, base_u, base_uu, power_u = cuda._sums(
            row, cached, classes, top, unit, scale, 1 / delta - 1, BLOCK, True, COMPUTE
        )
        own = sums + (index * spans + span) * 4
        tl.store(own, total)
        tl.store(own + 1, base_u)
        tl.store(own + 2, base_uu)
        tl.store(own + 3, power_u)


@triton.jit(do_not_specialize=["rounds"])
def _newton_step(sums, states, spans, rounds, q, r, SPANS: tl.constexpr, COMPUTE: tl.constexpr):
    index = tl.program_id(0).to(tl.int64)
    state = states + index * _COLUMNS
    q, r = tl.load(q + index), tl.load(r + index)
    if tl.load(state + _DONE) == 0:
        place = tl.arange(0, SPANS)
        own, some = sums + (index * spans + place) * 4, place < spans
        total, base_u = tl.sum(tl.load(own, some, 0.0), 0), tl.sum(tl.load(own + 1, some, 0.0), 0)
        base_uu, power_u = tl.sum(tl.load(own + 2, some, 0.0), 0), tl.sum(tl.load(own + 3, some, 0.0), 0)
        delta = tl.maximum(q - 1, cuda._LEAST_DELTA)
        y, low, high = tl.load(state + _Y), tl.load(state + _LOW), tl.load(state + _HIGH)
        mean, renyi, residual, step = cuda._point(y, q, r, delta, total, base_u, base_uu, power_u)
        goes_on = tl.abs(step) > cuda._last_step(delta, COMPUTE)
        low, high, following = cuda._following(y, step, residual, low, high, rounds)
        tl.store(state + _Y, tl.where(goes_on, following, y))
        tl.store(state + _LOW, low)
        tl.store(state + _HIGH, high)
        tl.store(state + _STEP, tl.where(goes_on, 0.0, step))
        tl.store(state + _TOTAL, total)
        tl.store(state + _BASE_U, base_u)
        tl.store(state + _MEAN, mean)
        tl.store(state + _RENYI, renyi)
        tl.store(state + _DONE, tl.where(goes_on, 0.0, 1.0))


def supports(logits: Tensor, orders: Orders) -> bool:
    """Whether the rows are few and long, and `cuda` supports them. No CUDA graph can hold this: the host waits."""
    long = logits.shape[-1] >= _LONG and logits.numel() <= _FEW * logits.shape[-1]
    recorded = logits.is_cuda and torch.cuda.is_current_stream_capturing()
    return long and not recorded and cuda.supports(logits, orders)


def solve(logits: Tensor, orders: Orders, wants_conjugate: bool) -> tuple[Tensor, Tensor]:
    logits = logits.contiguous()
    states, conjugate = _solved(logits, orders)
    return _probabilities(logits, states, orders), conjugate


def class_loss(
    logits: Tensor, targets: Tensor, orders: Orders, ignore_index: int, reduction: str, slopes: str, keeps: str
) -> tuple[Tensor, Tensor, None, Slopes, Tensor]:
    indices, counted = checked_classes(targets, logits.shape[-1], ignore_index), targets != ignore_index
    logits = logits.contiguous()
    states, conjugate = _solved(logits, orders)
    of_target = logits.gather(-1, indices.unsqueeze(-1)).squeeze(-1).double()
    losses = (conjugate.double() - (of_target - states[..., 0])).float()
    loss, divisor = any_device.reduced(losses, counted, reduction)
    if slopes == "none":
        return loss, states, None, None, divisor
    at = ConjugateSensitivity(_probabilities(logits, states, orders), *any_device.shaped(orders, logits))
    of_rows = torch.where(counted.unsqueeze(-1), at.conjugate_slopes(), 0)
    return loss, states, None, any_device.of_kind(of_rows, slopes, divisor), divisor


map_backward = any_device.map_backward
class_loss_backward = cuda.class_loss_backward


def _probabilities(logits: Tensor, states: Tensor, orders: Orders) -> Tensor:
    """p is p − y, the gradient of the loss, where no class is y."""
    no_class = torch.full(logits.shape[:-1], -1, device=logits.device)
    one = torch.ones((), dtype=torch.float32, device=logits.device)
    return cuda.class_loss_backward(logits, no_class, states, one, orders, ignore_index=-2, divisor=1.0)


def _solved(logits: Tensor, orders: Orders) -> tuple[Tensor, Tensor]:
    """The states of `backend.Implementation.class_loss` and the conjugate of each row."""
    rows = logits.reshape(-1, logits.shape[-1])
    q, r, temperature = (order.contiguous() for order in columns(orders, rows))
    largest = rows.amax(-1, keepdim=True).float()
    y, step, total, base_u, mean, renyi = _roots(rows, largest, q, r, temperature)
    delta = (q - 1).clamp_min(cuda._LEAST_DELTA.value)
    objective = mean / delta * y.exp() + renyi * expm1_ratio((1 - r) * renyi) / q
    total = total - step / delta * base_u  # at the end of the last step, by d(w^β)/dy = −β w^(β−1) u
    conjugate = torch.where(total > 0, objective.clamp_min(0) * temperature, math.nan)
    states = torch.cat([largest.double(), 1 / temperature, delta * (-y - step).exp(), total], -1)
    return states.reshape(*logits.shape[:-1], 4), conjugate.float().reshape(logits.shape[:-1])


def _roots(rows: Tensor, largest: Tensor, q: Tensor, r: Tensor, temperature: Tensor) -> list[Tensor]:
    """y, its last step, and at y the total, Σ w^(β−1) u, the mean and R_q, each float64 [rows, 1]."""
    count, classes = rows.shape
    spans = math.ceil(classes / _SPAN)
    most, margin = math.log(classes), cuda._MARGIN.value
    low = -(r - 1).clamp_min(0) * most - margin
    high = (2 - 1 / q - r).clamp_min(0) * most + margin
    states = rows.new_zeros((count, _COLUMNS.value), dtype=torch.float64)
    sums = rows.new_empty((count, spans, 4), dtype=torch.float64)
    for column, start in ((_Y, high), (_LOW, low), (_HIGH, high)):
        states[:, column.value] = start.squeeze(-1)
    compute = cuda._compute(rows)
    with torch.cuda.device_of(rows):
        for rounds in range(cuda._MOST_STEPS.value):
            _partial_sums[(count, spans)](
                rows, largest, states, sums, classes, spans, q, temperature, _SPAN, compute,
                num_warps=cuda.warps(_SPAN),
            )  # fmt: skip
            _newton_step[(count,)](sums, states, spans, rounds, q, r, triton.next_power_of_2(spans), compute)
            if rounds % _ROUNDS_TOGETHER == _ROUNDS_TOGETHER - 1 and states[:, _DONE.value].all():
                break
    return [states[:, column.value, None] for column in (_Y, _STEP, _TOTAL, _BASE_U, _MEAN, _RENYI)]
