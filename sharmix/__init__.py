"""Sparse, learnable output activations: SharMiX and the maps it contains, their losses and their exact derivatives."""

from sharmix._backend import backend, plain_torch
from sharmix._configuration import show_config
from sharmix.activations import Activation
from sharmix.alpha_relu import alpha_relu, alpha_relu_loss
from sharmix.entropy import sharma_mittal_entropy
from sharmix.linear_loss import linear_fenchel_young_loss
from sharmix.losses import fenchel_young_loss
from sharmix.maps import entmax, sharmix, sparsemax
from sharmix.registry import available_activations, build_activation

__version__ = "0.1.0"

__all__ = [
    "Activation",
    "alpha_relu",
    "alpha_relu_loss",
    "available_activations",
    "backend",
    "build_activation",
    "entmax",
    "fenchel_young_loss",
    "linear_fenchel_young_loss",
    "plain_torch",
    "sharma_mittal_entropy",
    "sharmix",
    "show_config",
    "sparsemax",
]
