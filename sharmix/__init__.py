"""Sparse, learnable output activations: SharMiX and the maps it contains, their losses and their exact derivatives.

Start with `help(sharmix.sharmix)`, a map, `help(sharmix.SharMiXLoss)`, its loss, and `help(sharmix.SharMiX)`, a module
with fixed or learned orders. `sharmix.parallel` and most modules of `sharmix.integrations` are imported by their names.
"""

from sharmix import conformal as conformal
from sharmix._activation import Activation
from sharmix._attention import LogLengthScale, attention
from sharmix._export import export_decompositions
from sharmix._linear_loss import linear_fenchel_young_loss
from sharmix._operators.backend import backend, plain_torch
from sharmix._show_config import show_config
from sharmix._version import __version__ as __version__
from sharmix.activations import AlphaReLU, Entmax, Normmax, SharMiX, Softmax, Sparsemax
from sharmix.criteria import AlphaReLULoss, EntmaxLoss, FenchelYoungLoss, NormmaxLoss, SharMiXLoss, SparsemaxLoss
from sharmix.functional import (
    alpha_relu,
    alpha_relu_loss,
    entmax,
    entmax_loss,
    fenchel_young_loss,
    normmax,
    normmax_loss,
    sharma_mittal_entropy,
    sharmix,
    sparsemax,
    sparsemax_loss,
    support_size,
)
from sharmix.gates import Entmoid, Sparsemoid, entmoid, sparsemoid
from sharmix.integrations.multihead_attention import SparseAttention
from sharmix.registry import available_activations, build_activation, register

__all__ = [
    "Activation",
    "AlphaReLU",
    "AlphaReLULoss",
    "Entmax",
    "EntmaxLoss",
    "Entmoid",
    "FenchelYoungLoss",
    "LogLengthScale",
    "Normmax",
    "NormmaxLoss",
    "SharMiX",
    "SharMiXLoss",
    "Softmax",
    "SparseAttention",
    "Sparsemax",
    "SparsemaxLoss",
    "Sparsemoid",
    "alpha_relu",
    "alpha_relu_loss",
    "attention",
    "available_activations",
    "backend",
    "build_activation",
    "entmax",
    "entmax_loss",
    "entmoid",
    "export_decompositions",
    "fenchel_young_loss",
    "linear_fenchel_young_loss",
    "normmax",
    "normmax_loss",
    "plain_torch",
    "register",
    "sharma_mittal_entropy",
    "sharmix",
    "show_config",
    "sparsemax",
    "sparsemax_loss",
    "sparsemoid",
    "support_size",
]
