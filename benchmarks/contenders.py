"""The maps, losses, output layers and attentions that are timed beside each other: torch's, ours, other packages'.

A map is a function of logits, a loss of logits and targets, a layer of hidden states, weight and targets, a causal
attention of queries, keys and values.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.functional import cross_entropy, linear, scaled_dot_product_attention

import sharmix

BASELINES = {"map": "softmax", "loss": "cross-entropy", "layer": "linear + cross-entropy", "attention": "softmax"}
FIXED, LEARNED = "SharMiX (1.25, 1.5)", "SharMiX learned"


@dataclass(frozen=True)
class Contender:
    """One map, loss, output layer or attention.

    Attributes:
        name: in tables and figures.
        kind: `map`, `loss`, `layer` or `attention`.
        source: the package that has it, by its name in pip; `floor` for an operation that shows the least time.
        load: imports the package, and returns the function.
        parameters: learned tensors that get gradients too.
    """

    name: str
    kind: str
    source: str
    load: Callable[[], Callable[..., Tensor]]
    parameters: tuple[Tensor, ...] = ()


def cpu_contenders(kind: str) -> list[Contender]:
    """All contenders of a kind on the CPU, the baseline first."""
    return [one for one in [*_torch(), *_ours(torch.device("cpu")), *_entmax()] if one.kind == kind]


def gpu_contenders(kind: str, device: torch.device) -> list[Contender]:
    """All contenders of a kind on a GPU, the baseline first."""
    sorting = [one for one in _entmax() if "bisect" not in one.name]
    return [one for one in [*_torch(), *_ours(device), *sorting, *_gpu_packages()] if one.kind == kind]


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


def _torch() -> list[Contender]:
    return [
        Contender("softmax", "map", "torch", lambda: lambda z: z.softmax(-1)),
        Contender("cross-entropy", "loss", "torch", lambda: cross_entropy),
        Contender("relu", "map", "floor", lambda: torch.relu),  # one node that reads and writes its input once
        Contender("Python node", "map", "floor", lambda: _PythonMap.apply),
        Contender("sum", "loss", "floor", lambda: lambda z, targets: z.sum()),
        Contender("Python node", "loss", "floor", lambda: _PythonLoss.apply),
        Contender("linear + cross-entropy", "layer", "torch", lambda: lambda h, w, y: cross_entropy(linear(h, w), y)),
        Contender("linear_cross_entropy", "layer", "torch", lambda: functional.linear_cross_entropy),
        Contender("linear_cross_entropy, chunked", "layer", "torch", _chunked),
        Contender("softmax", "attention", "torch", lambda: partial(scaled_dot_product_attention, is_causal=True)),
    ]


def _chunked() -> Callable[..., Tensor]:
    return partial(functional.linear_cross_entropy, options=torch.nn.LinearCrossEntropyOptions())


def _ours(device: torch.device) -> list[Contender]:
    fixed = partial(sharmix.build_activation, "sharmix_fixed")
    activations = {
        FIXED: fixed(q=1.25, r=1.5),
        "SharMiX (1.3, 1.5)": fixed(q=1.3, r=1.5),  # 1/(q − 1) is no integer: powers take logarithms
        LEARNED: sharmix.build_activation("sharmix_learned", q=1.25, r=1.5),
        "SharMiX (1.75, 1.25)": fixed(q=1.75, r=1.25),  # its objective has several maxima
        "1.5-entmax": sharmix.build_activation("entmax", alpha=1.5),
        "sparsemax": sharmix.build_activation("sparsemax"),
    }
    found = []
    for name, act in activations.items():
        parameters = tuple(act.to(device).parameters())
        found += [
            Contender(name, "map", "sharmix", lambda act=act: act, parameters),
            Contender(name, "loss", "sharmix", lambda act=act: act.loss, parameters),
        ]

    def layer(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        return sharmix.fenchel_young_loss(linear(hidden, weight), targets, 1.25, 1.5)

    return [
        *found,
        Contender("linear_fenchel_young_loss (1, 1)", "layer", "sharmix", lambda: partial(_fused_layer, q=1.0, r=1.0)),
        Contender("linear + SharMiX (1.25, 1.5)", "layer", "sharmix", lambda: layer),
        Contender("linear_fenchel_young_loss (1.25, 1.5)", "layer", "sharmix", lambda: _fused_layer),
        *[
            Contender(name, "attention", "sharmix", lambda act=activations[name]: partial(_attention, act))
            for name in (FIXED, "1.5-entmax")
        ],
    ]


def _fused_layer(hidden: Tensor, weight: Tensor, targets: Tensor, q: float = 1.25, r: float = 1.5) -> Tensor:
    return sharmix.linear_fenchel_young_loss(hidden, weight, None, targets, q, r)


def _attention(activation: sharmix.Activation, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return sharmix.attention(query, key, value, activation, is_causal=True)


def _entmax() -> list[Contender]:
    package = partial(import_module, "entmax")
    return [
        Contender("entmax15 (package)", "map", "entmax", lambda: partial(package().entmax15, dim=-1)),
        Contender("sparsemax (package)", "map", "entmax", lambda: partial(package().sparsemax, dim=-1)),
        Contender(
            "entmax_bisect (package)", "map", "entmax", lambda: partial(package().entmax_bisect, alpha=1.5, dim=-1)
        ),
        Contender("sparsemax_bisect (package)", "map", "entmax", lambda: partial(package().sparsemax_bisect, dim=-1)),
        Contender("entmax15 (package)", "loss", "entmax", lambda: package().Entmax15Loss()),
        Contender("entmax15 (package), full sort", "loss", "entmax", lambda: package().Entmax15Loss(k=None)),
        Contender("sparsemax (package)", "loss", "entmax", lambda: package().SparsemaxLoss()),
        Contender("entmax_bisect (package)", "loss", "entmax", lambda: package().EntmaxBisectLoss(1.5)),
        Contender("sparsemax_bisect (package)", "loss", "entmax", lambda: package().SparsemaxBisectLoss()),
    ]


def _gpu_packages() -> list[Contender]:
    liger = partial(import_module, "liger_kernel.transformers")

    def liger_layer() -> Callable[..., Tensor]:
        loss = liger().LigerFusedLinearCrossEntropyLoss()
        return lambda hidden, weight, targets: loss(weight, hidden, targets)

    def quack_layer() -> Callable[..., Tensor]:
        return import_module("quack.linear_cross_entropy").chunked_linear_cross_entropy

    cut, splash, quack = (partial(import_module, name) for name in ("cut_cross_entropy", "adasplash", "quack"))
    # By default adasplash takes two steps, one in attention, which leaves dense rows unsolved.
    return [
        Contender("1.5-entmax (adasplash)", "map", "adasplash", lambda: partial(splash().triton_entmax15, n_iter=4)),
        Contender("sparsemax (adasplash)", "map", "adasplash", lambda: partial(splash().triton_sparsemax, n_iter=8)),
        Contender("sparsemax (Liger)", "map", "liger-kernel", lambda: liger().LigerSparsemax()),
        Contender("softmax (quack)", "map", "quack-kernels", lambda: quack().softmax),
        Contender("cross-entropy (Liger)", "loss", "liger-kernel", lambda: liger().LigerCrossEntropyLoss()),
        Contender("cross-entropy (quack)", "loss", "quack-kernels", lambda: quack().cross_entropy),
        Contender("fused linear cross-entropy (Liger)", "layer", "liger-kernel", liger_layer),
        Contender("cut cross-entropy", "layer", "cut-cross-entropy", lambda: cut().linear_cross_entropy),
        Contender("chunked cross-entropy (quack)", "layer", "quack-kernels", quack_layer),
        Contender("1.5-entmax (adasplash)", "attention", "adasplash", lambda: partial(splash().adasplash, niter=4)),
    ]


# By kind: the arguments, and the gradient of a map's output.
Inputs = dict[str, tuple[tuple[Tensor, ...], Tensor | None]]


def inputs(rows: int, classes: int, scale: float, dtype: torch.dtype, seed: int, device: str = "cpu") -> Inputs:
    """Logits that want gradients, for maps with the gradient of their output, for losses with targets."""
    generator = torch.Generator(device).manual_seed(seed)
    drawn = torch.randn(rows, classes, generator=generator, device=device) * scale
    targets = torch.randint(classes, (rows,), generator=generator, device=device)
    grad = torch.randn(rows, classes, generator=generator, device=device)
    logits = drawn.to(dtype).requires_grad_()
    return {"map": ((logits,), grad.to(dtype)), "loss": ((logits, targets), None)}


def layer_inputs(
    rows: int, features: int, classes: int, scale: float, dtype: torch.dtype, seed: int, device: str = "cpu"
) -> Inputs:
    """Hidden states and weights that want gradients, and targets. Logits have about the scale."""
    generator = torch.Generator(device).manual_seed(seed)
    hidden = torch.randn(rows, features, generator=generator, device=device)
    weight = torch.randn(classes, features, generator=generator, device=device)
    weight *= scale / features**0.5
    targets = torch.randint(classes, (rows,), generator=generator, device=device)
    return {"layer": ((hidden.to(dtype).requires_grad_(), weight.to(dtype).requires_grad_(), targets), None)}


def attention_inputs(
    heads: int, length: int, features: int, scale: float, dtype: torch.dtype, seed: int, device: str = "cpu"
) -> Inputs:
    """Queries, keys and values of one sequence that want gradients, and the gradient of the output.

    Scores have about the scale.
    """
    generator = torch.Generator(device).manual_seed(seed)
    drawn = torch.randn(4, 1, heads, length, features, generator=generator, device=device)
    query, key, value, grad = (drawn * torch.tensor([scale, 1, 1, 1], device=device).reshape(4, 1, 1, 1, 1)).to(dtype)
    return {"attention": (tuple(one.requires_grad_() for one in (query, key, value)), grad)}
