"""What `make gpu` times: maps, losses and output layers of torch, of ours, and of packages that need not be installed.

A map is a function of logits, a loss of logits and targets, a layer of hidden states, weight and targets.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.functional import cross_entropy, linear

import sharmix

BASELINES = {"map": "softmax", "loss": "cross-entropy", "layer": "linear + cross-entropy"}


@dataclass(frozen=True)
class Contender:
    """One map, loss or output layer.

    Attributes:
        name: in tables.
        kind: `map`, `loss` or `layer`.
        package: the package that has it, by its name in pip.
        load: imports the package, and returns the function.
        parameters: learned tensors that get gradients too.
    """

    name: str
    kind: str
    package: str
    load: Callable[[], Callable[..., Tensor]]
    parameters: tuple[Tensor, ...] = ()


def contenders(kind: str, device: torch.device) -> list[Contender]:
    """All contenders of a kind, the baseline first."""
    return [one for one in [*_torch(), *_ours(device), *_peers()] if one.kind == kind]


def _torch() -> list[Contender]:
    return [
        Contender("softmax", "map", "torch", lambda: lambda z: z.softmax(-1)),
        Contender("relu, the floor", "map", "torch", lambda: torch.relu),  # reads and writes the logits once
        Contender("cross-entropy", "loss", "torch", lambda: cross_entropy),
        Contender("linear + cross-entropy", "layer", "torch", lambda: lambda h, w, y: cross_entropy(linear(h, w), y)),
        Contender("torch's linear_cross_entropy", "layer", "torch", lambda: functional.linear_cross_entropy),
        Contender("torch's linear_cross_entropy, chunked", "layer", "torch", _chunked),
    ]


def _chunked() -> Callable[..., Tensor]:
    return partial(functional.linear_cross_entropy, options=torch.nn.LinearCrossEntropyOptions())


def _ours(device: torch.device) -> list[Contender]:
    activations = {
        "SharMiX (1.25, 1.5)": sharmix.build_activation("sharmix_fixed", q=1.25, r=1.5),
        "SharMiX (1.3, 1.5)": sharmix.build_activation("sharmix_fixed", q=1.3, r=1.5),
        "SharMiX learned": sharmix.build_activation("sharmix_learned", q=1.25, r=1.5),
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
    return [
        *found,
        Contender("linear + SharMiX (1.25, 1.5)", "layer", "sharmix", lambda: _linear_and_loss),
        Contender("linear_fenchel_young_loss (1.25, 1.5)", "layer", "sharmix", lambda: _linear_loss),
    ]


def _linear_and_loss(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    return sharmix.fenchel_young_loss(linear(hidden, weight), targets)


def _linear_loss(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    return sharmix.linear_fenchel_young_loss(hidden, weight, None, targets)


def _peers() -> list[Contender]:
    return [
        Contender("1.5-entmax (adasplash)", "map", "adasplash", lambda: import_module("adasplash").triton_entmax15),
        Contender("sparsemax (adasplash)", "map", "adasplash", lambda: import_module("adasplash").triton_sparsemax),
        Contender("sparsemax (Liger)", "map", "liger-kernel", lambda: _liger().LigerSparsemax()),
        Contender("1.5-entmax (entmax)", "map", "entmax", lambda: _sorting("entmax15")),
        Contender("sparsemax (entmax)", "map", "entmax", lambda: _sorting("sparsemax")),
        Contender("cross-entropy (Liger)", "loss", "liger-kernel", lambda: _liger().LigerCrossEntropyLoss()),
        Contender("fused linear cross-entropy (Liger)", "layer", "liger-kernel", _liger_layer),
        Contender("cut cross-entropy", "layer", "cut-cross-entropy", _cut_cross_entropy),
    ]


def _sorting(name: str) -> Callable[[Tensor], Tensor]:
    function = getattr(import_module("entmax"), name)
    return lambda z: function(z, dim=-1)


def _liger() -> Any:
    return import_module("liger_kernel.transformers")


def _liger_layer() -> Callable[..., Tensor]:
    loss = _liger().LigerFusedLinearCrossEntropyLoss()
    return lambda hidden, weight, targets: loss(weight, hidden, targets)


def _cut_cross_entropy() -> Callable[..., Tensor]:
    return import_module("cut_cross_entropy").linear_cross_entropy
