"""The loss of rows whose classes are split over the processes of a group, and its gradient, as operators.

Each process sends its K largest logits of each row, the candidates, to all others in one all-gather, and every process
solves the row of all candidates. If the K-th largest logit of a process is outside the support, so are all that the
process left out. If this holds for every process, the row is certified: its solution is that of the whole row, because
the equation has one root for r ≥ 2 − 1/q (docs/math.md, section 3). `shared_rows` solves the other rows together.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad

from sharmix._arguments import Order, define_operator, label_error, widened
from sharmix._mathematics.sensitivity import ConjugateSensitivity
from sharmix._operators.backend import select_implementation
from sharmix._operators.orders import checked_orders
from sharmix._operators.shared_rows import SharedRows, shifted, shrinkage_and_log_powers
from sharmix._private_torch import process_group

FOR_SOFTMAX = "for softmax use cross_entropy under torch.distributed.tensor.parallel.loss_parallel"
_LARGEST_Q = 3  # above it p is so steep in the logits that sums over all classes lose its last digits


def allowed_orders(q: Order, r: Order, temperature: Order, classes: int) -> Any:
    """The orders as numbers; ValueError if the loss of shared classes does not allow them."""
    orders: Any = checked_orders(torch.empty(0, classes, device="meta"), q, r, temperature, "error")
    if not 1 < orders[0] <= _LARGEST_Q:
        raise ValueError(
            f"q={orders[0]:g} is not allowed where processes share the classes; it must be above 1 and at most "
            f"{_LARGEST_Q}; {FOR_SOFTMAX}"
        )
    return orders


def _solve(
    logits: Tensor,
    targets: Tensor,
    ignore_index: int,
    own: Tensor,
    others: Tensor,
    background: Tensor | None,
    *settings: Any,
) -> tuple[Tensor, ...]:
    """Ω*(z) − z·y, [rows], for y = own · one-hot(target) + others · background, and what the backward pass needs.

    Logits are [rows, classes of this process]; targets, `own` and `others` are [rows]; `background` is [all classes],
    or None for 0.

    After the loss come the probabilities of this process's candidates and their columns, [rows, K]; which rows need the
    probabilities of all classes instead, [rows]; their largest logit, log s and log W, [rows, 3]; the slopes by q, r
    and T₀, [rows, 3], or [0] if they are not wanted; and on the CPU three numbers that are the same for all processes:
    of classes in the largest support of a process among the candidates, of rows not certified, and of rows of NaN.
    """
    q, r, temperature, sizes, group_name, candidates, wants_slopes, wants_q_slope = settings
    orders = allowed_orders(q, r, temperature, sum(sizes))
    group, counted = process_group(group_name), targets != ignore_index
    values, columns = logits.topk(min(candidates, logits.shape[-1]), -1)
    agreed = hash((*orders, wants_slopes, wants_q_slope))
    received = _Received(logits, values, targets, background, sizes, candidates, group, agreed)
    tops = torch.where(counted[:, None, None], received.tops, 0)
    row = tops.flatten(1)
    p, conjugate = select_implementation(row, orders).solve(row, orders, True)
    each = p.view(tops.shape)

    lost, all_sent = conjugate.isnan(), received.sizes <= candidates
    certified = ((each[..., -1] == 0) | all_sent).all(-1) | ~counted
    remaining = ~(certified | lost)
    support = pad(((each > 0).sum(-1) * counted.unsqueeze(-1)).flatten(), (0, 1)).amax()
    outside = counted & ((targets < 0) | (targets >= sum(sizes)))
    wrong = received.sizes != received.sizes.new_tensor(sizes), received.digests != received.digests[0], outside
    counts = torch.stack([support, remaining.sum(), lost.sum(), *(places.sum() for places in wrong)]).cpu()
    found, refused = counts[:3], counts[3:]  # from one copy, which waits for a GPU once
    # Only now, after the all-gather, so that no process waits for one that refuses.
    if refused[0]:
        held = received.sizes.tolist()
        raise ValueError(f"sizes={list(sizes)} is wrong, for the processes hold {held} classes; give these as sizes")
    if refused[1]:
        raise ValueError(
            "the processes give different targets or orders, or only some learn the orders; all must give the same"
        )
    if refused[2]:
        raise label_error(int(targets[outside][0]), sum(sizes), ignore_index)

    largest, slopes, solution = row.amax(-1), p.new_empty(0), p.new_full((len(p), 3), torch.nan)
    if wants_slopes or found[1]:
        at = ConjugateSensitivity(p, *orders)
        slopes = at.conjugate_slopes() * counted.unsqueeze(-1) if wants_slopes else slopes
    if found[1]:
        some = remaining.nonzero().squeeze(-1)
        rows = SharedRows(shifted(logits[some], largest[some], orders[0], orders[2]), orders, group)
        rows.solve(p[some], at.renyi[some, 0], each[some, :, -1].amax(-1), sum(sizes))
        solution[some] = torch.stack([largest[some], rows.y, rows.log_total], -1)
        conjugate[some] = rows.conjugate()
        if wants_slopes:
            slopes[some] = rows.conjugate_slopes(wants_q_slope)
    loss = torch.where(counted, conjugate - received.agreement(largest, own, others, background), 0)
    mine = torch.where(counted.unsqueeze(-1), each[:, dist.get_rank(group), : columns.shape[-1]], 0)
    wide = torch.promote_types(logits.dtype, torch.float32)
    return loss.to(wide), mine.to(wide).contiguous(), columns, remaining | lost, solution, slopes, found.clone()


def _fake_solve(logits: Tensor, *others: Any) -> tuple[Tensor, ...]:
    rows, wide, double = len(logits), torch.promote_types(logits.dtype, torch.float32), torch.float64
    candidates, wants_slopes, _ = others[-3:]
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
    `of_target` [rows], and `sums` of background · (logit − largest logit of the process), [rows, processes], or None.
    """

    def __init__(
        self,
        logits: Tensor,
        values: Tensor,
        targets: Tensor,
        background: Tensor | None,
        sizes: Sequence[int],
        candidates: int,
        group: dist.ProcessGroup,
        agreed: int,
    ) -> None:
        rank, wide = dist.get_rank(group), torch.promote_types(logits.dtype, torch.float32)
        tops = pad(values, (0, candidates - values.shape[-1]), value=-torch.inf)
        columns, held = _own_columns(targets, sizes, rank, logits)
        of_target = logits.gather(-1, columns) if logits.shape[-1] else tops[:, :1]
        parts = [tops, torch.where(held, of_target, -torch.inf)]
        if background is not None:
            share = background[sum(sizes[:rank]) :][: logits.shape[-1]].to(wide)
            share = pad(share, (0, logits.shape[-1] - len(share)))  # where `sizes` is wrong, which all learn below
            distance = torch.where(share > 0, widened(logits) - _finite(tops[:, :1]), 0)  # for weight 0, −∞ is allowed
            parts.append((distance * share).sum(-1, keepdim=True))
        rows = torch.cat(parts, -1)
        digest = (targets * torch.arange(1, len(targets) + 1, device=targets.device)).sum() + agreed
        head = torch.stack([torch.full_like(digest, logits.shape[-1]), digest]).view(rows.dtype)
        message = torch.cat([head, rows.flatten()])
        received = message.new_empty(len(sizes) * len(message))
        dist.all_gather_into_tensor(received, message, group=group)
        received = received.view(len(sizes), -1)
        all_rows = received[:, len(head) :].double().view(len(sizes), *rows.shape)
        self.sizes, self.digests = received[:, : len(head)].reshape(-1).view(torch.int64).view(-1, 2).unbind(-1)
        self.tops = all_rows[..., :candidates].movedim(0, 1)
        self.of_target = all_rows[..., candidates].amax(0)
        self.sums = None if background is None else all_rows[..., candidates + 1].T

    def agreement(self, largest: Tensor, own: Tensor, others: Tensor, background: Tensor | None) -> Tensor:
        """y·(z − largest), [rows]."""
        agreement = torch.where(own > 0, own * (self.of_target - largest), 0)
        if self.sums is None or background is None:
            return agreement
        totals = torch.stack([part.sum() for part in torch.split(background, self.sizes.tolist())])
        return agreement + others * (self.sums + totals * (_finite(self.tops[..., 0]) - largest.unsqueeze(-1))).sum(-1)


def _own_columns(targets: Tensor, sizes: Sequence[int], rank: int, logits: Tensor) -> tuple[Tensor, Tensor]:
    """The column of each row's target in the logits of a process, [rows, 1], and whether the process holds it."""
    columns = targets.unsqueeze(-1) - sum(sizes[:rank])
    held = (columns >= 0) & (columns < logits.shape[-1])
    return torch.where(held, columns, 0), held


def _finite(shift: Tensor) -> Tensor:
    return torch.where(shift.isfinite(), shift, 0)


def _gradient(
    grad: Tensor,
    logits: Tensor,
    targets: Tensor,
    ignore_index: int,
    own: Tensor,
    others: Tensor,
    background: Tensor | None,
    p: Tensor,
    columns: Tensor,
    dense: Tensor,
    solution: Tensor,
    found: Tensor,
    q: Tensor,
    temperature: Tensor,
    sizes: Sequence[int],
    group_name: str,
) -> Tensor:
    """grad (p − y) of this process's logits, for one grad for each row; no process waits for another."""
    rank = dist.get_rank(process_group(group_name))
    grad = torch.where(targets != ignore_index, grad, 0).unsqueeze(-1)
    error = torch.zeros_like(logits, dtype=grad.dtype, memory_format=torch.contiguous_format)
    error.scatter_(-1, columns, grad * p)
    if found[1:].any():
        some = dense.nonzero().squeeze(-1)
        largest, y, log_total = solution[some].unbind(-1)
        x = shifted(logits[some], largest, float(q), float(temperature))
        log_powers = shrinkage_and_log_powers(x, y, float(q) - 1)[1]
        error[some] = (grad[some] * (log_powers - log_total.unsqueeze(-1).to(x.dtype)).exp()).to(error.dtype)
    if background is not None:
        share = torch.split(background, list(sizes))[rank].to(error.dtype)
        error.addcmul_((grad * others.unsqueeze(-1)).to(error.dtype), share, value=-1)
    at, held = _own_columns(targets, sizes, rank, logits)
    if logits.shape[-1]:
        error.scatter_add_(-1, at, torch.where(held, -grad * own.unsqueeze(-1), 0).to(error.dtype))
    return error.to(logits.dtype)


solve = define_operator(
    "solve_shared",
    "(Tensor logits, Tensor targets, int ignore_index, Tensor own, Tensor others, Tensor? background, Tensor q, "
    "Tensor r, Tensor temperature, int[] sizes, str group, int candidates, bool wants_slopes, bool wants_q_slope) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    _solve,
    _fake_solve,
)
_gradient_operator = define_operator(
    "solve_shared_backward",
    "(Tensor grad, Tensor logits, Tensor targets, int ignore_index, Tensor own, Tensor others, Tensor? background, "
    "Tensor p, Tensor columns, Tensor dense, Tensor solution, Tensor found, Tensor q, Tensor temperature, int[] sizes, "
    "str group) -> Tensor",
    _gradient,
    lambda grad, logits, *_: torch.empty_like(logits, memory_format=torch.contiguous_format),
)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    logits, targets, ctx.ignore_index, own, others, background, *orders, ctx.sizes, ctx.group, _, _, _ = inputs
    ctx.save_for_backward(logits, targets, own, others, background, *output[1:], *orders)
    ctx.mark_non_differentiable(*output[1:])


def _backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    if torch.is_grad_enabled():
        raise RuntimeError("the gradient of a loss over shared classes cannot be differentiated again")
    logits, targets, own, others, background, p, columns, dense, solution, slopes, found, *orders = ctx.saved_tensors
    by_logits, wanted = None, ctx.needs_input_grad
    if wanted[0]:
        inputs = grad, logits, targets, ctx.ignore_index, own, others, background, p, columns, dense, solution, found
        by_logits = _gradient_operator(*inputs, orders[0], orders[2], ctx.sizes, ctx.group)
    by_orders = [
        (grad * slopes[:, i]).sum().to(order).reshape(order.shape) if wanted[6 + i] else None
        for i, order in enumerate(orders)
    ]
    return by_logits, *[None] * 5, *by_orders, *[None] * 5


torch.library.register_autograd("sharmix::solve_shared", _backward, setup_context=_keep)
