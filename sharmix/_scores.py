"""Proper scores of probabilities. Scores of maps with different entropies are comparable; their losses are not."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from sharmix._fenchel_young import Reduction
from sharmix._targets import checked_classes, nan_if_no_class


def proper_score(
    kind: Literal["brier", "log"],
    probabilities: Callable[[Tensor], Tensor],
    logits: Tensor,
    targets: Tensor,
    ignore_index: int,
    reduction: Reduction,
) -> Tensor:
    """The Brier score Σ (pᵢ − yᵢ)², or the log score −Σ yᵢ log pᵢ, of p = probabilities(logits).

    The log score leaves out rows where a target class has probability 0, or one below the smallest normal number of its
    dtype, 1.2e-38 in float32. Logits are [..., classes], targets class indices [...] or probabilities [..., classes].
    `reduction` is `mean` or `sum` over the rows that are not left out, or `none`.
    """
    y, counted = _probability_targets(logits, targets, ignore_index)
    p = probabilities(torch.where(counted.unsqueeze(-1), logits, 0))
    if kind == "brier":
        rows = (p - y).square().sum(-1)
    else:
        has_logarithm = p >= torch.finfo(p.dtype).tiny  # of smaller numbers, the derivative 1 / p can be infinite
        counted = counted & (has_logarithm | ~(y > 0)).all(-1)  # a y of NaN does not leave its row out
        rows = -(y * torch.where(has_logarithm, p, 1).log()).sum(-1)
    rows = torch.where(counted, rows, 0)
    if reduction == "none":
        return rows
    return rows.sum() / counted.sum().clamp_min(1) if reduction == "mean" else rows.sum()


def _probability_targets(logits: Tensor, targets: Tensor, ignore_index: int) -> tuple[Tensor, Tensor]:
    """The targets as probabilities [..., classes], and which rows count."""
    if targets.is_floating_point():
        return targets, torch.ones(targets.shape[:-1], dtype=torch.bool, device=targets.device)
    targets = targets.long()
    indices = checked_classes(targets, logits.shape[-1], ignore_index)
    one_hot = torch.zeros_like(logits).scatter(-1, indices.unsqueeze(-1), 1)
    return nan_if_no_class(one_hot, targets, logits.shape[-1], ignore_index), targets != ignore_index
