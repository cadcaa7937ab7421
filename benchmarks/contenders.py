"""The maps and losses that are timed beside each other: torch's, ours, and those of the entmax package."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import entmax
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import sharmix


@dataclass(frozen=True)
class Contender:
    """One map or loss.

    Attributes:
        name: in tables and figures.
        kind: `map` or `loss`.
        source: `torch`, `sharmix` or `entmax`, the package it is from; `floor` for what shows the least there is to do.
        run: the map of logits, or the loss of logits and targets.
        orders: what goals know ours by: `integer_power` and `other_power` by 1/(q − 1), `learned`, or `nonconcave`.
        parameters: learned tensors that get gradients too.
    """

    name: str
    kind: str
    source: str
    run: Callable[..., Tensor]
    orders: str | None = None
    parameters: tuple[Tensor, ...] = ()


BASELINES = {"map": "softmax", "loss": "cross-entropy"}
FIXED, LEARNED = "SharMiX (1.25, 1.5)", "SharMiX learned"


class _PythonMap(torch.autograd.Function):
    """A node of the graph in Python that copies its input, and its gradient."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        return logits.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.clone()


class _PythonLoss(torch.autograd.Function):
    """A node of the graph in Python that reads its input once, and writes its gradient once."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> Tensor:
        ctx.shape = logits.shape
        return logits.sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad.expand(ctx.shape).clone(), None


def contenders() -> list[Contender]:
    """All contenders, the baselines first."""
    return [
        Contender("softmax", "map", "torch", lambda z: z.softmax(-1)),
        Contender("cross-entropy", "loss", "torch", cross_entropy),
        Contender("relu", "map", "floor", torch.relu),  # one node that reads and writes its input once
        Contender("Python node", "map", "floor", _PythonMap.apply),
        Contender("sum", "loss", "floor", lambda z, targets: z.sum()),
        Contender("Python node", "loss", "floor", _PythonLoss.apply),
        *_ours("map"),
        *_ours("loss"),
        Contender("entmax15 (package)", "map", "entmax", lambda z: entmax.entmax15(z, dim=-1)),
        Contender("sparsemax (package)", "map", "entmax", lambda z: entmax.sparsemax(z, dim=-1)),
        Contender("entmax_bisect (package)", "map", "entmax", lambda z: entmax.entmax_bisect(z, 1.5, dim=-1)),
        Contender("sparsemax_bisect (package)", "map", "entmax", lambda z: entmax.sparsemax_bisect(z, dim=-1)),
        Contender("entmax15 (package)", "loss", "entmax", entmax.Entmax15Loss(k=None)),
        Contender("sparsemax (package)", "loss", "entmax", entmax.SparsemaxLoss(k=None)),
        Contender("entmax_bisect (package)", "loss", "entmax", entmax.EntmaxBisectLoss(1.5)),
        Contender("sparsemax_bisect (package)", "loss", "entmax", entmax.SparsemaxBisectLoss()),
    ]


def _ours(kind: str) -> list[Contender]:
    fixed = functools.partial(sharmix.build_activation, "sharmix_fixed")
    activations = {
        FIXED: ("integer_power", fixed(q=1.25, r=1.5)),
        "SharMiX (1.3, 1.5)": ("other_power", fixed(q=1.3, r=1.5)),
        LEARNED: ("learned", sharmix.build_activation("sharmix_learned", q=1.25, r=1.5)),
        "SharMiX (1.75, 1.25)": ("nonconcave", fixed(q=1.75, r=1.25)),  # its objective has several maxima
        "1.5-entmax": ("integer_power", sharmix.build_activation("entmax", alpha=1.5)),
        "sparsemax": ("integer_power", sharmix.build_activation("sparsemax")),
    }
    return [
        Contender(name, kind, "sharmix", act if kind == "map" else act.loss, orders, tuple(act.parameters()))
        for name, (orders, act) in activations.items()
    ]


def step(contender: Contender, logits: Tensor, targets: Tensor, grad: Tensor) -> Callable[[], None]:
    """Forward and backward, as in a training step: gradients are new each time."""
    leaves = (logits, *contender.parameters)

    def of_map() -> None:
        for leaf in leaves:
            leaf.grad = None
        contender.run(logits).backward(grad)

    def of_loss() -> None:
        for leaf in leaves:
            leaf.grad = None
        contender.run(logits, targets).backward()

    return of_map if contender.kind == "map" else of_loss


def inputs(rows: int, classes: int, scale: float, dtype: torch.dtype, seed: int) -> tuple[Tensor, ...]:
    """Logits that want gradients, targets, and the gradient of a map's output."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, classes, generator=generator) * scale
    targets = torch.randint(classes, (rows,), generator=generator)
    grad = torch.randn(rows, classes, generator=generator)
    return logits.to(dtype).requires_grad_(), targets, grad.to(dtype)
