"""Ω*(z) − z·y of rows whose classes are split over processes, and its gradient, as operators.

Each process sends its K largest logits of each row, the candidates, to all others in one all-gather, and every process
solves the row of all candidates. If the K-th largest logit of a process is outside the support, so are all that the
process left out. If this holds for every process, the row is certified: its solution is that of the whole row, because
the equation has one root for r ≥ 2 − 1/q (docs/math.md, section 3). `_newton` solves the other rows together.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad

from sharmix._arguments import Order, define_operator, widened
from sharmix._mathematics.sensitivity import ConjugateSensitivity
from sharmix._operators.backend import select_implementation
from sharmix._operators.orders import checked_orders
from sharmix._targets import label_error, outside_classes
from sharmix.parallel._newton import SplitRows, shifted, shrinkage_and_log_powers
from sharmix.parallel._split import Split, Targets

FOR_SOFTMAX = "for softmax use cross_entropy under torch.distributed.tensor.parallel.loss_parallel"
_LARGEST_Q = 3  # above it p is so steep in the logits that sums over all classes lose its last digits


def allowed_orders(q: Order, r: Order, temperature: Order, classes: int) -> Any:
    """The orders as numbers; ValueError if the loss of split classes does not allow them."""
    orders: Any = [order.item() if isinstance(order, Tensor) else order for order in (q, r, temperature)]
    orders = checked_orders(torch.empty(0, classes, device="meta"), orders, "error")
    if not 1 < orders[0] <= _LARGEST_Q:
        raise ValueError(
            f"q={orders[0]:g} is not allowed where the classes are split over processes; it must be above 1 and at "
            f"most {_LARGEST_Q}; {FOR_SOFTMAX}"
        )
    return orders


def solve(
    logits: Tensor, targets: Targets, orders: tuple[Tensor, Tensor, Tensor], split: Split
) -> tuple[Tensor, Tensor]:
    """Ω*(z) − z·y of each row, [rows], for logits [rows, classes of this process]; 0 for rows that do not count.

    The second result holds three numbers on the CPU, which are the same for all processes: of classes in the largest
    support of a process among the candidates, of rows not certified, and of rows of NaN.
    """
    learns = torch.is_grad_enabled() and any(order.requires_grad for order in orders)
    wants_slopes = learns, learns and orders[0].requires_grad
    rows, *_, counts = _solve_operator(logits, *targets, *orders, *split, *wants_slopes)
    return rows, counts


def _solve(logits: Tensor, *flat: Any) -> tuple[Tensor, ...]:
    """What `solve` returns, and between its results what the backward pass needs.

    These are the probabilities of this process's candidates and their columns, [rows, K]; which rows need the
    probabilities of all classes instead, [rows]; their largest logit, log s and log W, [rows, 3]; the slopes by q, r
    and T₀, [rows, 3], or [0] if they are not wanted.
    """
    targets, (q, r, temperature), split = Targets(*flat[:3]), flat[3:6], Split(*flat[6:9])
    wants_slopes, wants_q_slope = flat[9:]
    orders = allowed_orders(q, r, temperature, split.classes)
    counted = targets.counted
    received = _Received(logits, targets, split, agreed=hash((*orders, wants_slopes, wants_q_slope)))
    tops = torch.where(counted[:, None, None], received.tops, 0)
    row = tops.flatten(1)
    p, conjugate, _ = select_implementation(row, orders).solve(row, orders, wants_conjugate=True, keeps=False)
    each = p.view(tops.shape)

    lost, all_sent = conjugate.isnan(), received.sizes <= split.candidates
    certified = ((each[..., -1] == 0) | all_sent).all(-1) | ~counted
    remaining = ~(certified | lost)
    support = pad(((each > 0).sum(-1) * counted.unsqueeze(-1)).flatten(), (0, 1)).amax()
    counts = received.checked_counts([support, remaining.sum(), lost.sum()], targets, split)

    largest, slopes, solution = row.amax(-1), p.new_empty(0), p.new_full((len(p), 3), torch.nan)
    if wants_slopes or counts[1]:
        at = ConjugateSensitivity(p, *orders)
        slopes = at.conjugate_slopes() * counted.unsqueeze(-1) if wants_slopes else slopes
    if counts[1]:
        some = remaining.nonzero().squeeze(-1)
        rows = SplitRows(shifted(logits[some], largest[some], orders[0], orders[2]), orders, split.group)
        rows.solve(p[some], at.renyi[some, 0], each[some, :, -1].amax(-1), split.classes)
        solution[some] = torch.stack([largest[some], rows.y, rows.log_total], -1)
        conjugate[some] = rows.conjugate()
        if wants_slopes:
            slopes[some] = rows.conjugate_slopes(wants_q_slope)
    loss = torch.where(counted, conjugate - received.agreement(largest, targets.smoothing, split.classes), 0)
    mine = torch.where(counted.unsqueeze(-1), each[:, split.rank, : received.columns.shape[-1]], 0)
    wide = torch.promote_types(logits.dtype, torch.float32)
    dense = remaining | lost
    return loss.to(wide), mine.to(wide).contiguous(), received.columns, dense, solution, slopes, counts


def _fake_solve(logits: Tensor, *flat: Any) -> tuple[Tensor, ...]:
    rows, wide, double = len(logits), torch.promote_types(logits.dtype, torch.float32), torch.float64
    candidates, wants_slopes, _ = flat[-3:]
    few = rows, min(candidates, logits.shape[-1])
    return (
        logits.new_empty(rows, dtype=wide),
        logits.new_empty(few, dtype=wide),
        logits.new_empty(few, dtype=torch.int64),
        logits.new_empty(rows, dtype=torch.bool),
        logits.new_empty(rows, 3, dtype=double),
        logits.new_empty((rows, 3) if wants_slopes else 0, dtype=double),
        torch.empty(3, dtype=torch.int64, device="cpu"),
    )


class _Received:
    """What all processes, this one among them, send to all in one all-gather.

    From each process come its number of classes, `sizes`, and a digest of what all must give alike, `digests`, both
    [processes]. For each row there are in float64 the candidates `tops` [rows, processes, K], the target's logit
    `of_target` [rows], and with label smoothing `sums` of the distances to the process's largest logit, [rows,
    processes], else None. `columns` [rows, K] has the places of this process's own candidates.
    """

    def __init__(self, logits: Tensor, targets: Targets, split: Split, agreed: int) -> None:
        wide, candidates, indices = torch.promote_types(logits.dtype, torch.float32), split.candidates, targets.indices
        values, self.columns = logits.topk(min(candidates, logits.shape[-1]), -1)
        tops = pad(values, (0, candidates - values.shape[-1]), value=-torch.inf)
        columns, held = split.own_columns(indices, logits)
        of_target = logits.gather(-1, columns) if logits.shape[-1] else tops[:, :1]
        parts = [tops, torch.where(held, of_target, -torch.inf)]
        if targets.smoothing:
            parts.append((widened(logits) - _finite(tops[:, :1])).to(wide).sum(-1, keepdim=True))
        rows = torch.cat(parts, -1)
        digest = (indices * torch.arange(1, len(indices) + 1, device=indices.device)).sum() + agreed
        head = torch.stack([torch.full_like(digest, logits.shape[-1]), digest]).view(rows.dtype)
        message = torch.cat([head, rows.flatten()])
        received = message.new_empty(len(split.sizes) * len(message))
        dist.all_gather_into_tensor(received, message, group=split.group)
        received = received.view(len(split.sizes), -1)
        all_rows = received[:, len(head) :].double().view(len(split.sizes), *rows.shape)
        self.sizes, self.digests = received[:, : len(head)].reshape(-1).view(torch.int64).view(-1, 2).unbind(-1)
        self.tops = all_rows[..., :candidates].movedim(0, 1)
        self.of_target = all_rows[..., candidates].amax(0)
        self.sums = all_rows[..., candidates + 1].T if targets.smoothing else None

    def checked_counts(self, counts: list[Tensor], targets: Targets, split: Split) -> Tensor:
        """The counts on the CPU; ValueError if the processes do not agree, or a target is out of range.

        It is raised only now, after the all-gather, so that no process waits for one that refuses.
        """
        outside = targets.counted & outside_classes(targets.indices, split.classes)
        wrong = self.sizes != self.sizes.new_tensor(split.sizes), self.digests != self.digests[0], outside
        found = torch.stack([*counts, *(places.sum() for places in wrong)]).cpu()  # one copy waits for a GPU once
        wrong_sizes, different, wrong_targets = found[len(counts) :].tolist()
        if wrong_sizes:
            held = self.sizes.tolist()
            raise ValueError(
                f"sizes={list(split.sizes)} is wrong, for the processes hold {held} classes; give these as sizes"
            )
        if different:
            raise ValueError(
                "the processes give different targets or orders, or only some learn the orders; all must give the same"
            )
        if wrong_targets:
            raise label_error(int(targets.indices[outside][0]), split.classes, targets.ignore_index)
        return found[: len(counts)].clone()

    def agreement(self, largest: Tensor, smoothing: float, classes: int) -> Tensor:
        """y·(z − largest), [rows]."""
        if self.sums is None:
            return self.of_target - largest
        of_all = self.sums + self.sizes * (_finite(self.tops[..., 0]) - largest.unsqueeze(-1))
        of_target = (1 - smoothing) * (self.of_target - largest) if smoothing < 1 else 0  # the target may be at −∞
        return of_target + smoothing / classes * of_all.sum(-1)


def _finite(shift: Tensor) -> Tensor:
    return torch.where(shift.isfinite(), shift, 0)


def _gradient(grad: Tensor, logits: Tensor, *flat: Any) -> Tensor:
    """grad (p − y) of this process's logits, for one grad for each row; no process waits for another."""
    targets, split, (p, columns, dense, solution, counts) = Targets(*flat[:3]), Split(*flat[5:8]), flat[8]
    q, temperature = map(float, flat[3:5])
    grad = torch.where(targets.counted, grad, 0).unsqueeze(-1)
    error = torch.zeros_like(logits, dtype=grad.dtype, memory_format=torch.contiguous_format)
    error.scatter_(-1, columns, grad * p)
    if counts[1:].any():
        some = dense.nonzero().squeeze(-1)
        largest, y, log_total = solution[some].unbind(-1)
        x = shifted(logits[some], largest, q, temperature)
        log_powers = shrinkage_and_log_powers(x, y, q - 1)[1]
        error[some] = (grad[some] * (log_powers - log_total.unsqueeze(-1).to(x.dtype)).exp()).to(error.dtype)
    if targets.smoothing:
        error -= (grad.double() * (targets.smoothing / split.classes)).to(error.dtype)
    at, held = split.own_columns(targets.indices, logits)
    if logits.shape[-1]:
        of_target = (grad.double() * (1 - targets.smoothing)).to(error.dtype)
        error.scatter_add_(-1, at, torch.where(held, -of_target, 0))
    return error.to(logits.dtype)


_TARGETS = "Tensor indices, int ignore_index, float smoothing"
_SPLIT = "int[] sizes, str group_name, int candidates"
_solve_operator = define_operator(
    "vocab_parallel",
    f"(Tensor logits, {_TARGETS}, Tensor q, Tensor r, Tensor temperature, {_SPLIT}, bool wants_slopes, "
    "bool wants_q_slope) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    _solve,
    _fake_solve,
)
_gradient_operator = define_operator(
    "vocab_parallel_backward",
    f"(Tensor grad, Tensor logits, {_TARGETS}, Tensor q, Tensor temperature, {_SPLIT}, Tensor[] solved) -> Tensor",
    _gradient,
    lambda grad, logits, *_: torch.empty_like(logits, memory_format=torch.contiguous_format),
)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    logits, indices, *ctx.target_options, q, r, temperature, sizes, group_name, candidates, _, _ = inputs
    ctx.split = sizes, group_name, candidates
    ctx.save_for_backward(logits, indices, q, r, temperature, *output[1:])
    ctx.mark_non_differentiable(*output[1:])


def _backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    if torch.is_grad_enabled():
        raise RuntimeError("the gradient of a loss over split classes cannot be differentiated again")
    logits, indices, q, r, temperature, *solved, slopes, counts = ctx.saved_tensors
    by_logits, wanted = None, ctx.needs_input_grad
    if wanted[0]:
        targets = indices, *ctx.target_options
        by_logits = _gradient_operator(grad, logits, *targets, q, temperature, *ctx.split, [*solved, counts])
    by_orders = [
        (grad * slopes[:, i]).sum().to(order).reshape(order.shape) if wanted[4 + i] else None
        for i, order in enumerate((q, r, temperature))
    ]
    return by_logits, *[None] * 3, *by_orders, *[None] * 5


torch.library.register_autograd("sharmix::vocab_parallel", _backward, setup_context=_keep)
